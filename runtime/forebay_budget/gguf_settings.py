"""A GGUF's metadata by config.json's names, so that families are described once."""

from collections.abc import Iterable, Mapping
from typing import Any

from forebay_budget.families import find_gguf_family
from forebay_budget.family import Family
from forebay_budget.inspection import ModelError
from forebay_budget.settings import Settings

_KEYS = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "value_dim": "attention.value_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "sliding_window": "attention.sliding_window",
    "sliding_window_pattern": "attention.sliding_window_pattern",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope_theta": "rope.freq_base",
    "rope_local_base_freq": "rope.freq_base_swa",
    "rotary_dim": "rope.dimension_count",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "norm_topk_prob": "expert_weights_norm",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
}
_DEFAULT_IF_SILENT = (
    "rms_norm_eps",
    "rope_local_base_freq",
    "sliding_window_pattern",
    "decoder_sparse_step",
    "norm_topk_prob",
    "attn_logit_softcapping",
    "final_logit_softcapping",
)
"""Where a GGUF may be silent, and means what config.json would."""
_DEFAULT_THETA = 10_000.0


def read_gguf_settings(
    metadata: Mapping[str, Any], tensor_names: Iterable[str]
) -> tuple[Family, Settings]:
    """Translate a GGUF's metadata; some of what it says, it says by the tensors it has.

    Raises: ModelError if it names no architecture, or one that is not known.
    """
    kind = metadata.get("general.architecture")
    if not isinstance(kind, str):
        raise ModelError("BadConfig", "The GGUF names no general.architecture.")
    names = {key: f"{kind}.{suffix}" for key, suffix in _KEYS.items()}
    values = {key: metadata[name] for key, name in names.items() if name in metadata}
    values["rope_scaling"] = _rope_scaling(metadata, kind, frozenset(tensor_names))
    family = find_gguf_family(kind, has_experts=bool(values.get("num_experts")))
    defaults = {key: family.defaults[key] for key in _DEFAULT_IF_SILENT if key in family.defaults}
    settings = Settings(values, names, {**defaults, "rope_theta": _DEFAULT_THETA})
    return family, settings.with_defaults(family.untold_by_gguf(settings))


def _rope_scaling(
    metadata: Mapping[str, Any], kind: str, tensor_names: frozenset[str]
) -> dict[str, Any]:
    """The rotary embedding's scaling in config.json's words."""

    def stated(name: str) -> Any:
        return metadata.get(f"{kind}.rope.scaling.{name}")

    scaling_type, factor = stated("type"), stated("factor")
    if "rope_factors_long.weight" in tensor_names:
        scaling_type = "longrope"
    elif "rope_freqs.weight" in tensor_names:
        scaling_type = "stored"
    elif scaling_type is None and metadata.get(f"{kind}.rope.scale_linear", 1.0) != 1.0:
        scaling_type, factor = "linear", metadata[f"{kind}.rope.scale_linear"]
    return {
        "rope_type": "none" if scaling_type is None else scaling_type,
        "factor": factor,
        "original_max_position_embeddings": stated("original_context_length"),
        "attention_factor": stated("attn_factor"),
        "beta_fast": stated("yarn_beta_fast"),
        "beta_slow": stated("yarn_beta_slow"),
    }
