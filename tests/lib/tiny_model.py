"""Tiny random checkpoints of real architectures, by transformers, with odd sizes on purpose."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

_ODD_SIZES: dict[str, Any] = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 32,
    "vocab_size": 131,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "dtype": "float32",
}
"""head_dim 32 is not 96 / 6; every row is a whole number of GGUF's blocks of 32."""

_FAMILIES: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
}


def build_tiny(family: str = "llama", **sizes: Any) -> PreTrainedModel:
    """A random model of a family; vectors are random too, so that none of them can be left out."""
    config_class, model_class = _FAMILIES[family]
    if family == "mistral":
        sizes = {"sliding_window": None, **sizes}
    config = config_class(**{**_ODD_SIZES, **sizes})
    torch.manual_seed(0)
    model: PreTrainedModel = model_class(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.normal_(1.0 if name.endswith("norm.weight") else 0.0, 0.3)
    return model


def save_tiny(folder: Path, family: str = "llama", **sizes: Any) -> PreTrainedModel:
    """Write a random model as a Hugging Face folder."""
    model = build_tiny(family, **sizes)
    model.save_pretrained(folder)
    return model


def reference_logits(model: PreTrainedModel, token_ids: list[int]) -> torch.Tensor:
    """What transformers makes of a prompt: the logits after each token, [T, V]."""
    with torch.no_grad():
        logits: torch.Tensor = model(torch.tensor([token_ids])).logits[0]
    return logits


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def save_gguf(
    path: Path, model: PreTrainedModel, kind: gguf.GGMLQuantizationType, **metadata: Any
) -> None:
    """Write a model as GGUF with every matrix in one type, as llama.cpp's conversion lays it out.

    The model's own weights are replaced by what the file's reader makes of them, so that it stays
    the oracle whatever the type loses.
    """
    config: Any = model.config
    arch = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2"}[config.model_type]
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    writer.add_eos_token_id(2)
    for key, value in metadata.items():
        writer.add_string(key, value)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            num_heads = heads.get(name.split(".")[-2]) if arch == "llama" else None
            parameter.copy_(_write(writer, gguf_name(name), parameter, (kind, num_heads)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(name: str) -> str:
    """GGUF's name of a Hugging Face tensor."""
    for long, short in _GGUF_NAMES.items():
        name = name.replace(long, short)
    return name.replace("model.layers.", "blk.")


def _write(
    writer: gguf.GGUFWriter,
    name: str,
    parameter: torch.Tensor,
    how: tuple[gguf.GGMLQuantizationType, int | None],
) -> torch.Tensor:
    """Add one tensor, and return what a reader gets."""
    kind, num_heads = how
    values = parameter.detach().numpy()
    if num_heads is not None:
        values = _interleave(values, num_heads)
    if values.ndim == 1:
        kind = gguf.GGMLQuantizationType.F32
    stored = gguf.quantize(np.ascontiguousarray(values), kind)
    writer.add_tensor(name, stored, raw_dtype=kind)
    read = gguf.dequantize(stored, kind).reshape(values.shape)
    return torch.from_numpy(_separate(read, num_heads) if num_heads is not None else read.copy())


def _interleave(rows: np.ndarray[Any, Any], num_heads: int) -> np.ndarray[Any, Any]:
    """Rows (0, 1, 2, …) of each head to (0, D/2, 1, D/2 + 1, …)."""
    halves = rows.reshape(num_heads, 2, -1, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def _separate(rows: np.ndarray[Any, Any], num_heads: int) -> np.ndarray[Any, Any]:
    pairs = rows.reshape(num_heads, -1, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape).copy()
