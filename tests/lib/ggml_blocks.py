"""Quantised rows as ggml stores them, also of types that the gguf package only reads."""

from typing import Any

import gguf
import numpy as np

Array = np.ndarray[Any, Any]

_HALVES: dict[str, tuple[int, ...]] = {
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
}
"""Where the blocks of those types that the gguf package does not write have their float16."""


def quantise(values: Array, kind: gguf.GGMLQuantizationType) -> tuple[Array, Array]:
    """Rows of bytes, and the numbers that the gguf package reads from them.

    Of a type that it does not write the numbers are random, of about the values' size.
    Shapes: values [..., rows, columns] float32.
    """
    if kind.name in _HALVES:
        stored = _random_blocks(kind, values)
    else:
        stored = np.ascontiguousarray(gguf.quantize(values, kind))
    return stored, gguf.dequantize(stored, kind).reshape(values.shape)


def _random_blocks(kind: gguf.GGMLQuantizationType, values: Array) -> Array:
    """Every bit at random, but for the float16, of which some would be no numbers."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(values.size)
    blocks = random.integers(0, 256, (values.size // elements, size), dtype=np.uint8)
    plain = blocks.copy()
    for start in _HALVES[kind.name]:
        halves = random.normal(size=(len(blocks), 1)).astype(np.float16)
        plain[:, start : start + 2] = halves.view(np.uint8)
    factor = values.std() / gguf.dequantize(plain.reshape(-1), kind).std()
    for start in _HALVES[kind.name]:
        halves = plain[:, start : start + 2].copy().view(np.float16)
        plain[:, start : start + 2] = (halves * factor).astype(np.float16).view(np.uint8)
    return plain.reshape(*values.shape[:-1], -1)
