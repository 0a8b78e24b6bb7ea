"""The structures of the C interface of products, as ctypes knows them; see native/*.h."""

from __future__ import annotations

import ctypes
from enum import IntEnum

FORMATS = ("float32", "bfloat16", "codes")
ZERO_KINDS = ("middle", "integers", "mins")


class InputForm(IntEnum):
    """What a product takes its inputs as.

    ROUNDED: to what the processor is quickest with, eight bits for codes, bfloat16 for bfloat16 and
    for attention whose cache is not float32. EXACT: float32, and weights become float32.
    """

    ROUNDED = 0
    EXACT = 1


class NativeMatrix(ctypes.Structure):
    """Matrix of native/matrix.h."""

    _fields_ = [
        ("format", ctypes.c_int32),
        ("bits", ctypes.c_int32),
        ("zero_kind", ctypes.c_int32),
        ("group_size", ctypes.c_int32),
        ("num_outputs", ctypes.c_int32),
        ("num_inputs", ctypes.c_int32),
        ("num_stored", ctypes.c_int32),
        ("scale_factor", ctypes.c_float),
        ("min_factor", ctypes.c_float),
        ("weights", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("zeros", ctypes.c_void_p),
        ("input_order", ctypes.c_void_p),
    ]


class NativeCall(ctypes.Structure):
    """LinearCall of native/linear.h."""

    _fields_ = [
        ("x", ctypes.c_void_p),
        ("x_stride", ctypes.c_int64),
        ("num_rows", ctypes.c_int32),
        ("bias", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("out_stride", ctypes.c_int64),
        ("adds", ctypes.c_bool),
        ("input_form", ctypes.c_int32),
    ]


class NativeCodeRows(ctypes.Structure):
    """CodeRows of native/packing.h."""

    _fields_ = [
        ("codes", ctypes.c_void_p),
        ("row_stride", ctypes.c_int64),
        ("num_outputs", ctypes.c_int32),
        ("num_inputs", ctypes.c_int32),
        ("bits", ctypes.c_int32),
    ]


class NativeDenseRows(ctypes.Structure):
    """DenseRows of native/packing.h."""

    _fields_ = [
        ("weights", ctypes.c_void_p),
        ("row_stride", ctypes.c_int64),
        ("num_outputs", ctypes.c_int32),
        ("num_inputs", ctypes.c_int32),
        ("element_bytes", ctypes.c_int32),
    ]
