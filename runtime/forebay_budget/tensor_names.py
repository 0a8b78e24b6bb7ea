"""GGUF's names for Hugging Face's tensors.

The layout's check and the runtime's reader go by Hugging Face's names, whichever the file.
"""

import re

from forebay_budget.family import Family

_WHOLE = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_OF_A_LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_EXPERT = re.compile(r"experts\.(\d+)\.(\w+)")


def to_gguf(name: str, family: Family) -> tuple[str, int | None]:
    """GGUF's name for a tensor; and of one expert's, which of the experts stacked in it."""
    module, _, kind = name.rpartition(".")
    match = _LAYER.fullmatch(module)
    if match is None:
        return f"{_WHOLE.get(module, module)}.{kind}", None
    layer, part = match.groups()
    short, expert = _of_a_mixture(part.removeprefix(f"{family.experts.block}."), family)
    if short is None:
        short = _norms(family).get(part) or _OF_A_LAYER.get(part, part)
    return f"blk.{layer}.{short}.{kind}", expert


def _of_a_mixture(part: str, family: Family) -> tuple[str | None, int | None]:
    if part == "gate":
        return "ffn_gate_inp", None
    match = _EXPERT.fullmatch(part)
    if match is None:
        return None, None
    names = family.experts
    shorts = {names.gate: "ffn_gate_exps", names.up: "ffn_up_exps", names.down: "ffn_down_exps"}
    return shorts.get(match[2], match[2]), int(match[1])


def _norms(family: Family) -> dict[str | None, str]:
    return {
        family.norms.before_attention: "attn_norm",
        family.norms.after_attention: "post_attention_norm",
        family.norms.before_mlp: "ffn_norm",
        family.norms.after_mlp: "post_ffw_norm",
    }
