"""The instructions of a native program, as native/instructions.h lays them out."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, ClassVar

import torch
from torch import Tensor

from forebay_kernels.kv_layer import KvLayer

_INT, _FLOAT, _POINTER = ctypes.c_int32, ctypes.c_float, ctypes.c_void_p

Fields = Sequence[tuple[str, Any]]

MOST_HEAD_DIM = 512
"""What native/kv_cache.h says."""


class Number(IntEnum):
    """How a number is stored."""

    FLOAT32 = 0
    BFLOAT16 = 1
    FLOAT16 = 2
    FP8 = 3
    INT8 = 4
    INT4 = 5


NUMBER_OF_DTYPE = {
    torch.float32: Number.FLOAT32,
    torch.bfloat16: Number.BFLOAT16,
    torch.float16: Number.FLOAT16,
}
_NUMBER_OF_KIND = {"fp8": Number.FP8, "int8": Number.INT8, "int4": Number.INT4}


class Gate(IntEnum):
    """What the left half of a gate_mul's input goes through."""

    SILU = 0
    GELU_TANH = 1


class KvCache(ctypes.Structure):
    """native/kv_cache.h"""

    _fields_: ClassVar[Fields] = [
        ("number", _INT),
        ("num_blocks", _INT),
        ("block_size", _INT),
        ("num_kv_heads", _INT),
        ("head_dim", _INT),
        ("k", _POINTER),
        ("v", _POINTER),
        ("k_scale", _POINTER),
        ("v_scale", _POINTER),
    ]

    @classmethod
    def of(cls, layer: KvLayer) -> KvCache:
        """Where a layer's keys and values lie; the layer must outlive it.

        Raises: ValueError if they are not stored in a way that the kernels read.
        """
        number = _NUMBER_OF_KIND.get(layer.kind, NUMBER_OF_DTYPE.get(layer.k.dtype))
        if number is None or layer.head_dim > MOST_HEAD_DIM:
            raise ValueError(
                f"the CPU kernels read no cache of {layer.k.dtype} with {layer.head_dim} numbers a "
                f"head; they read float32, bfloat16, float16, fp8, int8 and int4, and up to "
                f"{MOST_HEAD_DIM} numbers"
            )
        parts = (layer.k, layer.v, layer.k_scale, layer.v_scale)
        if not all(part is None or part.is_contiguous() for part in parts):
            raise ValueError("a layer's keys and values are not contiguous")
        return cls(number, *layer.k.shape[:3], layer.head_dim, *(_address(part) for part in parts))


class Instruction(ctypes.Structure):
    """What all begin with. OPERATION: its number among native/instructions.h's operations."""

    OPERATION: ClassVar[int]
    _fields_: ClassVar[Fields] = [("operation", _INT), ("rows", _INT)]

    def __init__(self, **fields: Any) -> None:
        super().__init__(operation=self.OPERATION, **fields)


class Embedding(Instruction):
    """The rows of token ids."""

    OPERATION = 0
    _fields_: ClassVar[Fields] = [
        ("number", _INT),
        ("width", _INT),
        ("scale", _FLOAT),
        ("num_ids", _INT),
        ("table", _POINTER),
        ("matrix", _POINTER),
        ("out", _POINTER),
    ]


class RmsNorm(Instruction):
    """Rows through a norm."""

    OPERATION = 1
    _fields_: ClassVar[Fields] = [
        ("width", _INT),
        ("eps", _FLOAT),
        ("weight", _POINTER),
        ("x", _POINTER),
        ("out", _POINTER),
    ]


class LinearProduct(Instruction):
    """Rows times a matrix."""

    OPERATION = 2
    _fields_: ClassVar[Fields] = [
        ("x_stride", _INT),
        ("out_stride", _INT),
        ("adds", _INT),
        ("input_form", _INT),
        ("matrix", _POINTER),
        ("bias", _POINTER),
        ("x", _POINTER),
        ("out", _POINTER),
    ]


class Add(Instruction):
    """Rows onto others."""

    OPERATION = 3
    _fields_: ClassVar[Fields] = [("width", _INT), ("x", _POINTER), ("to", _POINTER)]


class RotateAndWrite(Instruction):
    """Norm of heads, rotation, and the cache write."""

    OPERATION = 4
    _fields_: ClassVar[Fields] = [
        ("num_heads", _INT),
        ("rotated_size", _INT),
        ("num_positions", _INT),
        ("eps", _FLOAT),
        ("cache", KvCache),
        ("norm_weight", _POINTER),
        ("cos", _POINTER),
        ("sin", _POINTER),
        ("qkv", _POINTER),
        ("queries", _POINTER),
    ]


class Attention(Instruction):
    """Attention over the cache."""

    OPERATION = 5
    _fields_: ClassVar[Fields] = [
        ("num_heads", _INT),
        ("window", _INT),
        ("scale", _FLOAT),
        ("softcap", _FLOAT),
        ("input_form", _INT),
        ("cache", KvCache),
        ("sinks", _POINTER),
        ("queries", _POINTER),
        ("out", _POINTER),
    ]


class GateMul(Instruction):
    """The gate of an MLP."""

    OPERATION = 6
    _fields_: ClassVar[Fields] = [
        ("gate", _INT),
        ("width", _INT),
        ("gate_up", _POINTER),
        ("out", _POINTER),
    ]


class Softcap(Instruction):
    """Bends numbers, in place."""

    OPERATION = 7
    _fields_: ClassVar[Fields] = [("width", _INT), ("cap", _FLOAT), ("x", _POINTER)]


class Scale(Instruction):
    """Multiplies by a number, in place."""

    OPERATION = 8
    _fields_: ClassVar[Fields] = [("width", _INT), ("factor", _FLOAT), ("x", _POINTER)]


class TakeSampled(Instruction):
    """The rows of sampled tokens."""

    OPERATION = 9
    _fields_: ClassVar[Fields] = [("width", _INT), ("x", _POINTER), ("out", _POINTER)]


class FlagFinite(Instruction):
    """Which rows are finite numbers."""

    OPERATION = 10
    _fields_: ClassVar[Fields] = [("width", _INT), ("x", _POINTER), ("flags", _POINTER)]


def _address(part: Tensor | None) -> int | None:
    return None if part is None else part.data_ptr()
