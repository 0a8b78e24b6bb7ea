"""A real model of the tests, Gemma 3 270M as Q4_K_M GGUF by `make model`, and its oracle."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from forebay_budget.gguf import GgufTensor, read_gguf_header
from model import GEMMA3

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def gemma3_path() -> Path:
    """Return the GGUF file.

    Raises: FileNotFoundError that names the command which fetches it.
    """
    if not GEMMA3.path.is_file():
        raise FileNotFoundError(f"{GEMMA3.path} is missing; run `make model`")
    return GEMMA3.path


def load_gemma3() -> Any:
    """transformers' model in float32, its sizes as published, its weights as the gguf package
    reads them."""
    config = Gemma3TextConfig(
        hidden_size=640,
        intermediate_size=2048,
        num_hidden_layers=18,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=256,
        vocab_size=262_144,
        max_position_embeddings=32_768,
        sliding_window=512,
        query_pre_attn_scalar=256,
        dtype="float32",
    )
    with torch.device("meta"):
        model: Any = Gemma3ForCausalLM(config)
    header = read_gguf_header(gemma3_path(), max_array_items=16)
    data = np.memmap(gemma3_path(), dtype=np.uint8, mode="r")
    state = {
        _hugging_face_name(tensor.name): _read(tensor, data[header.data_offset + tensor.offset :])
        for tensor in header.tensors
    }
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, assign=True)
    # What is computed rather than loaded is on the meta device too.
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    model.model.embed_tokens.embed_scale = torch.tensor(config.hidden_size**0.5)
    return model.eval()


def _hugging_face_name(name: str) -> str:
    *layer, part, kind = name.split(".")
    prefix = f"model.layers.{layer[1]}." if layer else ""
    return f"{prefix}{_NAMES[part]}.{kind}"


def _read(tensor: GgufTensor, data: np.ndarray[Any, Any]) -> torch.Tensor:
    kind = gguf.GGMLQuantizationType[tensor.ggml_type_name]
    raw = data[: tensor.num_bytes].reshape(tensor.shape[0], -1)
    values = torch.from_numpy(gguf.dequantize(raw, kind).copy()).reshape(tensor.shape)
    # The conversion adds one to the weights of norms.
    return values - 1 if "norm" in tensor.name else values
