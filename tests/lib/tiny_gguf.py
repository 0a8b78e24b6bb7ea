"""Writes models of transformers as GGUF files, laid out as llama.cpp's conversion does.

Names come from the gguf package, so that they are not our reader's own.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import PreTrainedModel

from ggml_blocks import quantise

Array = np.ndarray[Any, Any]

_ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen2_moe": "qwen2moe",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
}


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    kinds: Sequence[gguf.GGMLQuantizationType],
    metadata: Mapping[str, Any],
) -> None:
    """Write a model, and put into it what a reader gets; its matrices take the kinds in turn."""
    config: Any = model.config
    architecture = _ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, architecture)
    _add_sizes(writer, config)
    _add_numbers(writer, config)
    writer.add_eos_token_id(2)
    for key, value in metadata.items():
        writer.add_string(key, value)
    names = _name_map(architecture, config.num_hidden_layers)
    turns = itertools.cycle(kinds)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            _write(writer, names, (name, parameter), (turns, config, architecture))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_sizes(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    num_experts = getattr(config, "num_local_experts", getattr(config, "num_experts", None))
    if num_experts:
        writer.add_expert_count(num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    for name, add in (
        ("moe_intermediate_size", writer.add_expert_feed_forward_length),
        ("shared_expert_intermediate_size", writer.add_expert_shared_feed_forward_length),
        ("sliding_window", writer.add_sliding_window),
        ("attn_logit_softcapping", writer.add_attn_logit_softcapping),
        ("final_logit_softcapping", writer.add_final_logit_softcapping),
    ):
        if getattr(config, name, None):
            add(getattr(config, name))


def _add_numbers(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope["rope_theta"])
    kind = rope["rope_type"]
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(rope["factor"])
    if kind in ("yarn", "longrope"):
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if kind == "longrope":
        for length in ("long", "short"):
            factors = np.array(rope[f"{length}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", factors)
        original = rope["original_max_position_embeddings"]
        ratio = config.max_position_embeddings / original
        writer.add_rope_scaling_attn_factors((1 + math.log(ratio) / math.log(original)) ** 0.5)
    if kind == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_factors(config, rope))
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        head_dim = config.hidden_size // config.num_attention_heads
        writer.add_rope_dimension_count(int(head_dim * rope["partial_rotary_factor"]))


def _llama3_factors(config: Any, rope: Mapping[str, Any]) -> Array:
    """What each frequency is divided by, as the conversion computes it."""
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    original, factors = rope["original_max_position_embeddings"], []
    for i in range(0, config.head_dim, 2):
        wavelength = 2 * np.pi * rope["rope_theta"] ** (i / config.head_dim)
        if wavelength < original / high:
            factors.append(1.0)
        elif wavelength > original / low:
            factors.append(rope["factor"])
        else:
            share = (original / wavelength - low) / (high - low)
            factors.append(1 / ((1 - share) / rope["factor"] + share))
    return np.array(factors, np.float32)


def _name_map(architecture: str, num_layers: int) -> Callable[[str], str]:
    archs = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(archs[architecture], num_layers)

    def find(name: str) -> str:
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise KeyError(name)
        return found

    return find


def _write(
    writer: gguf.GGUFWriter,
    names: Callable[[str], str],
    tensor: tuple[str, torch.Tensor],
    how: tuple[Iterator[gguf.GGMLQuantizationType], Any, str],
) -> None:
    """Add one parameter, or two where experts' gate and up are one; it becomes what is read."""
    name, parameter = tensor
    kinds, config, architecture = how
    if name.endswith("experts.gate_up_proj"):
        block = name.removesuffix("gate_up_proj")
        for part, half in zip(("gate", "up"), parameter.chunk(2, 1), strict=True):
            half.copy_(_store(writer, names(f"{block}{part}_proj.weight"), half, kinds))
        return
    if name.endswith("experts.down_proj"):
        parameter.copy_(_store(writer, names(f"{name}.weight"), parameter, kinds))
        return
    stored_name = names(name)
    part = name.split(".")[-2]
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    if architecture == "llama" and part in heads:
        parameter.copy_(
            _separate(
                _store(writer, stored_name, _interleave(parameter, heads[part]), kinds), heads[part]
            )
        )
    elif architecture.startswith("gemma") and name.endswith("norm.weight"):
        parameter.copy_(_store(writer, stored_name, parameter + 1, kinds) - 1)
    else:
        # A matrix of one row is written as a vector.
        squeezed = parameter.squeeze(0)
        parameter.copy_(_store(writer, stored_name, squeezed, kinds).view(parameter.shape))


def _store(
    writer: gguf.GGUFWriter,
    name: str,
    tensor: torch.Tensor,
    kinds: Iterator[gguf.GGMLQuantizationType],
) -> torch.Tensor:
    """Add one tensor, and return what a reader gets."""
    values = np.ascontiguousarray(tensor.detach().numpy())
    kind = gguf.GGMLQuantizationType.F32
    if values.ndim > 1 and "ffn_gate_inp" not in name:
        kind = next(kinds)
    stored, read = quantise(values, kind)
    writer.add_tensor(name, stored, raw_dtype=kind)
    return torch.from_numpy(read.copy())


def _interleave(rows: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Rows (0, 1, 2, …) of each head to (0, D/2, 1, D/2 + 1, …)."""
    halves = rows.reshape(num_heads, 2, -1, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def _separate(rows: torch.Tensor, num_heads: int) -> torch.Tensor:
    pairs = rows.reshape(num_heads, -1, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)
