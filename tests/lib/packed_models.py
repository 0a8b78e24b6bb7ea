"""Tiny models as quantisers publish them, built here by the formats' own rules.

Everything is numpy and shares nothing with the runtime's reading. The plain checkpoint's weights
are replaced by what the packed ones stand for, so that it is the oracle.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

Array = Any
"""A numpy array of numbers."""


@dataclass(frozen=True)
class Grid:
    """How a matrix is rounded.

    group: inputs that share a scale, 0: all of a row. is_reordered: which inputs do is shuffled.
    """

    bits: int = 4
    group: int = 32
    is_symmetric: bool = False
    is_reordered: bool = False


@dataclass(frozen=True)
class Rounded:
    """codes [N, K] from 0 on; scales, zeros [N, G]; groups [K], each input's."""

    codes: Array
    scales: Array
    zeros: Array
    groups: Array

    def values(self) -> Array:
        """What they stand for: [N, K] float32."""
        codes = self.codes.astype(np.float32) - self.zeros[:, self.groups]
        return codes * self.scales[:, self.groups].astype(np.float32)


def round_matrix(weight: torch.Tensor, grid: Grid, seed: int) -> Rounded:
    """Round to the nearest, with float16 scales, as a quantiser without calibration would."""
    values = weight.detach().numpy().astype(np.float32)
    num_inputs = values.shape[1]
    size = grid.group or num_inputs
    groups = np.arange(num_inputs) // size
    if grid.is_reordered:
        groups = np.random.default_rng(seed).permutation(groups)
    most = 2**grid.bits - 1
    by_group = np.stack([values[:, groups == g] for g in range(num_inputs // size)], 1)
    low, high = np.minimum(by_group.min(2), 0), np.maximum(by_group.max(2), 0)
    if grid.is_symmetric:
        scales = np.maximum(-low, high) / (2 ** (grid.bits - 1) - 1)
        zeros = np.full(scales.shape, 2 ** (grid.bits - 1))
    else:
        scales, zeros = (high - low) / most, np.round(-low / ((high - low) / most))
    scales = scales.astype(np.float16)
    wide = scales.astype(np.float32)[:, groups]
    codes = np.clip(np.round(values / wide) + zeros[:, groups], 0, most)
    return Rounded(codes.astype(np.int64), scales, zeros.astype(np.int64), groups)


def pack_words(numbers: Array, bits: int, places: tuple[int, ...] | None = None) -> Array:
    """The last axis by words of 32 bits, the first number lowest, or where places say."""
    a_word = 32 // bits
    places = places or tuple(range(a_word))
    *rest, count = numbers.shape
    filled = np.zeros((*rest, -(-count // a_word) * a_word), np.uint64)
    filled[..., :count] = numbers
    words = filled.reshape(*rest, -1, a_word)
    out = np.zeros(words.shape[:-1], np.uint64)
    for number, place in enumerate(places):
        out |= words[..., number] << np.uint64(bits * place)
    return out.astype(np.uint32).view(np.int32)


Tensors = dict[str, Array]


def pack_awq(rounded: Rounded, bits: int) -> Tensors:
    """AutoAWQ's gemm version: outputs packed, the eight of a word at 0 4 1 5 2 6 3 7."""
    places = (0, 4, 1, 5, 2, 6, 3, 7)
    return {
        "qweight": pack_words(rounded.codes.T, bits, places),
        "qzeros": pack_words(rounded.zeros.T, bits, places),
        "scales": rounded.scales.T,
    }


def pack_gptq(rounded: Rounded, bits: int, lack: int = 1) -> Tensors:
    """AutoGPTQ's: inputs packed down the columns, zeros across, each stored less one."""
    return {
        "qweight": pack_words(rounded.codes, bits).T,
        "qzeros": pack_words((rounded.zeros.T - lack) % 2**bits, bits),
        "scales": rounded.scales.T,
        "g_idx": rounded.groups.astype(np.int32),
    }


def pack_compressed(rounded: Rounded, bits: int) -> Tensors:
    """compressed-tensors' pack-quantized: inputs packed along rows, zeros down the columns."""
    tensors: Tensors = {
        "weight_packed": pack_words(rounded.codes, bits),
        "weight_scale": rounded.scales,
        "weight_shape": np.array(rounded.codes.shape, np.int64),
    }
    if np.any(rounded.zeros != 2 ** (bits - 1)):
        tensors["weight_zero_point"] = pack_words(rounded.zeros.T, bits).T
    if np.any(np.diff(rounded.groups) < 0):
        tensors["weight_g_idx"] = rounded.groups.astype(np.int32)
    return tensors


def pack_bytes(rounded: Rounded, bits: int) -> Tensors:
    """compressed-tensors' int-quantized: signed bytes as they are."""
    return {
        "weight": (rounded.codes - 128).astype(np.int8),
        "weight_scale": rounded.scales,
    }


@dataclass(frozen=True)
class Method:
    """A way to publish a model: what config.json says, and how each matrix is stored."""

    stated: dict[str, Any]
    grid: Grid
    pack: Callable[[Rounded, int], Tensors]


def save_packed(plain: Path, folder: Path, method: Method, skipped: tuple[str, ...] = ()) -> None:
    """Write a plain checkpoint as a packed one, and make the plain one stand for what was written.

    skipped: endings of modules that stay plain; the head and what chooses experts always do.
    """
    kept = (*skipped, ".gate", ".shared_expert_gate")
    stored = load_file(plain / "model.safetensors")
    packed: dict[str, torch.Tensor] = {}
    for name, weight in stored.items():
        module = name.removesuffix(".weight")
        if ".layers." not in name or weight.ndim != 2 or module.endswith(kept):
            packed[name] = weight
            continue
        # q, k and v see the same inputs, so a quantiser orders them alike.
        rounded = round_matrix(weight, method.grid, seed=weight.shape[1])
        stored[name] = torch.from_numpy(rounded.values())
        for ending, array in method.pack(rounded, method.grid.bits).items():
            packed[f"{module}.{ending}"] = torch.from_numpy(np.ascontiguousarray(array))
    folder.mkdir(parents=True, exist_ok=True)
    save_file(stored, plain / "model.safetensors", metadata={"format": "pt"})
    save_file(packed, folder / "model.safetensors", metadata={"format": "pt"})
    document = json.loads((plain / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(document | {"quantization_config": method.stated})
    )


def gptq(bits: int = 4, group: int = 32, **stated: Any) -> dict[str, Any]:
    """A quantization_config as GPTQ's tools write it."""
    return {"quant_method": "gptq", "bits": bits, "group_size": group, **stated}


def compressed(form: str, bits: int, **weights: Any) -> dict[str, Any]:
    """A quantization_config as compressed-tensors writes it."""
    scheme = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": 32} | weights
    group = {"targets": ["Linear"], "weights": scheme, "input_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


def pack_gptq_v2(rounded: Rounded, bits: int) -> Tensors:
    """GPTQModel's second format: zeros as they are."""
    return pack_gptq(rounded, bits, lack=0)


METHODS = {
    "awq": Method(
        {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}, Grid(), pack_awq
    ),
    "gptq": Method(gptq(sym=True), Grid(is_symmetric=True), pack_gptq),
    "gptq-asymmetric": Method(gptq(sym=False), Grid(), pack_gptq),
    "gptq-v2": Method(gptq(sym=False, checkpoint_format="gptq_v2"), Grid(), pack_gptq_v2),
    "gptq-reordered": Method(gptq(sym=False, desc_act=True), Grid(is_reordered=True), pack_gptq),
    "gptq-8-bits": Method(gptq(8, sym=False), Grid(8), pack_gptq),
    "gptq-8-bits-rows": Method(gptq(8, -1, sym=True), Grid(8, 0, is_symmetric=True), pack_gptq),
    "gptq-rows": Method(gptq(4, -1, sym=False, desc_act=True), Grid(4, 0), pack_gptq),
    "packed": Method(
        compressed("pack-quantized", 4, symmetric=True),
        Grid(is_symmetric=True),
        pack_compressed,
    ),
    "packed-asymmetric-reordered": Method(
        compressed("pack-quantized", 4, symmetric=False, actorder="group"),
        Grid(is_reordered=True),
        pack_compressed,
    ),
    "packed-8-bits-rows": Method(
        compressed("pack-quantized", 8, symmetric=True, strategy="channel", group_size=None),
        Grid(8, 0, is_symmetric=True),
        pack_compressed,
    ),
    "bytes": Method(
        compressed("int-quantized", 8, symmetric=True, strategy="channel", group_size=None),
        Grid(8, 0, is_symmetric=True),
        pack_bytes,
    ),
}
"""Every way of publishing that the runtime reads, of each kind of zeros, groups and order."""

_TOKENS = {
    "num_bits": 8,
    "type": "int",
    "strategy": "token",
    "dynamic": True,
    "symmetric": True,
}


def _with_rounded_activations(method: Method) -> Method:
    (group,) = method.stated["config_groups"].values()
    groups = {"group_0": group | {"input_activations": _TOKENS}}
    return replace(method, stated=method.stated | {"config_groups": groups})


W8A8 = _with_rounded_activations(METHODS["bytes"])
"""Bytes for weights and for each token's activations: not what the plain checkpoint says."""
