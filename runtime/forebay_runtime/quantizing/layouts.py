"""Rounded matrices as the tensors that AWQ's and GPTQ's loaders read, and what config.json says.

Both pack codes into words of 32 bits. AWQ's `gemm` packs neighbouring outputs, interleaved;
GPTQ's first format packs inputs, and stores zero points less one. A recipe's `layout` says which.
Source: the published checkpoints of both, as AutoAWQ, AutoGPTQ, transformers and vLLM read them.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from forebay_runtime.quantizing.grid import RoundedMatrix
from forebay_runtime.quantizing.recipe import Recipe

_AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""In which of a word's eight places each of eight neighbouring outputs lies."""
_WORD_BITS = 32
_FUSED = {"q_proj": "qkv_proj", "gate_proj": "gate_up_proj"}
"""What engines that hold matrices of the same inputs as one call these."""


def pack_matrix(matrix: RoundedMatrix, recipe: Recipe) -> dict[str, Tensor]:
    """The tensors of a matrix, by the endings of their names; scales are float16."""
    if recipe.layout == "awq":
        return _pack_awq(matrix)
    return _pack_gptq(matrix, recipe.bits)


def _pack_awq(matrix: RoundedMatrix) -> dict[str, Tensor]:
    """Shapes: qweight [K, N / 8]; qzeros [G, N / 8]; scales [G, N]."""
    return {
        "qweight": _words(matrix.codes.T, 4, _AWQ_PLACES),
        "qzeros": _words(matrix.zeros.T, 4, _AWQ_PLACES),
        "scales": matrix.scales.T.half(),
    }


def _pack_gptq(matrix: RoundedMatrix, bits: int) -> dict[str, Tensor]:
    """Shapes: qweight [K * bits / 32, N]; qzeros [G, N * bits / 32]; scales [G, N]; g_idx [K]."""
    places = tuple(range(_WORD_BITS // bits))
    return {
        "qweight": _words(matrix.codes, bits, places).T,
        "qzeros": _words(matrix.zeros.T - 1, bits, places),
        "scales": matrix.scales.T.half(),
        "g_idx": matrix.groups.int(),
    }


def _words(numbers: Tensor, bits: int, places: Sequence[int]) -> Tensor:
    """The last axis by words, each number at its place from the lowest bits up."""
    by_word = numbers.unflatten(-1, (-1, len(places))).int()
    words = torch.zeros(by_word.shape[:-1], dtype=torch.int32, device=numbers.device)
    for number, place in enumerate(places):
        words |= by_word[..., number] << (bits * place)
    return words


def quantization_config(recipe: Recipe, kept: Sequence[str]) -> dict[str, Any]:
    """What config.json says of it. kept: the modules of layers that stay plain."""
    kept = _with_fused(kept)
    group_size = recipe.group_size or -1
    made_by = f"forebay:{importlib.metadata.version('forebay')}"
    if recipe.layout == "awq":
        return {
            "quant_method": "awq",
            "version": "gemm",
            "bits": recipe.bits,
            "group_size": group_size,
            "zero_point": True,
            "modules_to_not_convert": ["lm_head", *kept],
        }
    config: dict[str, Any] = {
        "quant_method": "gptq",
        "checkpoint_format": "gptq",
        "bits": recipe.bits,
        "group_size": group_size,
        "sym": recipe.is_symmetric,
        "desc_act": recipe.is_reordered,
        "damp_percent": recipe.damping,
        "true_sequential": True,
        "lm_head": False,
        "meta": {"quantizer": [made_by]},
    }
    if kept:
        config["dynamic"] = {f"-:^{re.escape(module)}$": {} for module in kept}
    return config


def _with_fused(modules: Sequence[str]) -> list[str]:
    """Modules, and what engines ask for in their place, by names that some of them match whole."""
    found = list(modules)
    for module in modules:
        block, _, part = module.rpartition(".")
        if part in _FUSED:
            found.append(f"{block}.{_FUSED[part]}")
    return found
