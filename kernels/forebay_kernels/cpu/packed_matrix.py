"""A weight matrix in the layout that the CPU's products read; see native/matrix.h.

There is one layout for all sets of instructions, so that a matrix is packed once, whichever runs.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from forebay_kernels.code_matrix import CodeMatrix
from forebay_kernels.cpu.native_structs import (
    FORMATS,
    ZERO_KINDS,
    NativeCodeRows,
    NativeDenseRows,
    NativeMatrix,
)
from forebay_kernels.cpu.workspace import own_workspace
from forebay_kernels.quant_matrix import QuantMatrix

TILE_OUTPUTS = 16
BLOCK_INPUTS = 32
BITS = (2, 3, 4, 5, 6, 8)
SMALLEST_GROUP = 16

_HALF_MAX = 65504.0
_LEAST_EXACT = 2.0**-14
"""Below it a float16 has fewer bits."""


@dataclass(frozen=True)
class PackedMatrix:
    """N outputs by K stored inputs, in tiles of 16 outputs.

    format: float32, bfloat16 or codes, and weights accordingly.
    bits, group_size, scales, scale_factor: of codes. scales [tiles, groups, 16] float16, each times
    scale_factor, a power of two. zeros [tiles, groups, 16] uint8, or mins float16, each times
    min_factor; neither: every zero is the middle code. input_order [K] int32, which input each
    stored one is; None: as they come in.
    """

    format: str
    weights: Tensor
    num_outputs: int
    num_inputs: int
    num_stored: int
    bits: int = 0
    group_size: int = BLOCK_INPUTS
    scales: Tensor | None = None
    zeros: Tensor | None = None
    mins: Tensor | None = None
    scale_factor: float = 1.0
    min_factor: float = 1.0
    input_order: Tensor | None = None

    @property
    def num_bytes(self) -> int:
        """Of all that is kept."""
        parts = (self.weights, self.scales, self.zeros, self.mins, self.input_order)
        return sum(part.nbytes for part in parts if part is not None)

    @property
    def zero_kind(self) -> str:
        """middle, integers or mins."""
        return "mins" if self.mins is not None else "middle" if self.zeros is None else "integers"

    @cached_property
    def native(self) -> NativeMatrix:
        """What C++ takes; it holds only as long as this matrix does."""
        return NativeMatrix(
            format=FORMATS.index(self.format),
            bits=self.bits,
            zero_kind=ZERO_KINDS.index(self.zero_kind),
            group_size=self.group_size,
            num_outputs=self.num_outputs,
            num_inputs=self.num_inputs,
            num_stored=self.num_stored,
            scale_factor=self.scale_factor,
            min_factor=self.min_factor,
            weights=self.weights.data_ptr(),
            scales=_address(self.scales),
            zeros=_address(self.zeros if self.mins is None else self.mins),
            input_order=_address(self.input_order),
        )

    def rows(self, outputs: Tensor) -> Tensor:
        """The weights of some outputs [R] int64, as float32 [R, num_inputs]: an embedding's rows.

        Raises: ValueError if there is no such output.
        """
        if outputs.numel() and not 0 <= int(outputs.min()) <= int(outputs.max()) < self.num_outputs:
            raise ValueError(f"rows were asked for that a matrix of {self.num_outputs} lacks")
        ids = outputs.to(torch.int64).contiguous()
        out = torch.empty(ids.numel(), self.num_inputs)
        workspace = own_workspace()
        workspace.library.fb_embedding_rows(
            ctypes.byref(self.native),
            ctypes.c_void_p(ids.data_ptr()),
            ids.numel(),
            ctypes.c_void_p(out.data_ptr()),
            workspace.handle,
        )
        return out

    def dequantised(self) -> Tensor:
        """The weight that this stands for, float32 [N, num_inputs]."""
        return self.rows(torch.arange(self.num_outputs))


def pack_dense(weight: Tensor) -> PackedMatrix:
    """A weight [N, K] of float32 or bfloat16, as it is.

    Raises: ValueError for another dtype.
    """
    if weight.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"weights of {weight.dtype} cannot be packed; float32 and bfloat16 can")
    rows = weight if weight.stride(1) == 1 else weight.contiguous()
    num_outputs, num_inputs = rows.shape
    is_single = rows.dtype == torch.float32
    num_padded = num_inputs if is_single else -(-num_inputs // 2) * 2
    num_tiles = -(-num_outputs // TILE_OUTPUTS)
    packed = torch.empty(num_tiles, num_padded * TILE_OUTPUTS, dtype=rows.dtype)
    given = NativeDenseRows(
        rows.data_ptr(), rows.stride(0), num_outputs, num_inputs, rows.element_size()
    )
    _run_packing("fb_pack_dense", given, packed)
    return PackedMatrix(
        format="float32" if is_single else "bfloat16",
        weights=packed,
        num_outputs=num_outputs,
        num_inputs=num_inputs,
        num_stored=num_inputs,
    )


@dataclass(frozen=True)
class CodeScales:
    """What codes stand for: (code - zero) * scale, or code * scale + min.

    scales: [G, N], any float dtype. zeros: [G, N] integers up to 255; mins: [G, N] floats; neither:
    every zero is the middle code. group_size: inputs that share a scale; None: all of them.
    """

    bits: int
    group_size: int | None
    scales: Tensor
    zeros: Tensor | None = None
    mins: Tensor | None = None


def pack_codes(
    codes: Tensor,
    meaning: CodeScales,
    *,
    num_inputs: int | None = None,
    input_order: Tensor | None = None,
) -> PackedMatrix:
    """Codes [N, K] uint8, inputs in the order of input_order.

    Scales and mins are kept as float16 times a power of two, so those of float32 are rounded to 11
    bits. num_inputs: how many come in; None: K.
    Raises: ValueError if shapes or numbers are not what the layout can hold.
    """
    group_size = meaning.group_size or -(-codes.shape[1] // BLOCK_INPUTS) * BLOCK_INPUTS
    _check(codes, meaning, group_size)
    rows = codes if codes.stride(1) == 1 else codes.contiguous()
    num_outputs, num_stored = rows.shape
    num_tiles, num_blocks = -(-num_outputs // TILE_OUTPUTS), -(-num_stored // BLOCK_INPUTS)
    num_groups = -(-num_blocks * BLOCK_INPUTS // group_size)
    packed = torch.empty(num_tiles, num_blocks, 64 * meaning.bits, dtype=torch.uint8)
    given = NativeCodeRows(rows.data_ptr(), rows.stride(0), num_outputs, num_stored, meaning.bits)
    _run_packing("fb_pack_codes", given, packed)
    scales, scale_factor = _to_half(meaning.scales)
    mins, min_factor = (None, 1.0) if meaning.mins is None else _to_half(meaning.mins)
    zeros = None if meaning.zeros is None else meaning.zeros.to(torch.uint8)
    return PackedMatrix(
        format="codes",
        weights=packed,
        num_outputs=num_outputs,
        num_inputs=num_stored if num_inputs is None else num_inputs,
        num_stored=num_stored,
        bits=meaning.bits,
        group_size=group_size,
        scales=_tile(scales, num_groups),
        zeros=None if zeros is None else _tile(zeros, num_groups),
        mins=None if mins is None else _tile(mins, num_groups),
        scale_factor=scale_factor,
        min_factor=min_factor,
        input_order=None if input_order is None else input_order.to(torch.int32).contiguous(),
    )


def pack_quant(matrix: QuantMatrix) -> PackedMatrix:
    """A matrix that was packed for other devices."""
    meaning = CodeScales(matrix.bits, matrix.group_size, matrix.scales, matrix.zeros)
    return pack_codes(
        matrix.codes(), meaning, num_inputs=matrix.num_inputs, input_order=matrix.input_order
    )


def pack_coded(matrix: CodeMatrix) -> PackedMatrix:
    """A matrix of codes as a file has them."""
    meaning = CodeScales(matrix.bits, matrix.group_size, matrix.scales, mins=matrix.mins)
    return pack_codes(matrix.codes, meaning)


def _check(codes: Tensor, meaning: CodeScales, group_size: int) -> None:
    num_outputs, num_inputs = codes.shape
    if meaning.bits not in BITS:
        raise ValueError(
            f"{meaning.bits} bits a weight cannot be packed; {', '.join(map(str, BITS))} can"
        )
    if group_size != SMALLEST_GROUP and (group_size % BLOCK_INPUTS or group_size <= 0):
        raise ValueError(
            f"groups of {group_size} inputs cannot be packed; {SMALLEST_GROUP} and multiples of "
            f"{BLOCK_INPUTS} can"
        )
    if meaning.zeros is not None and meaning.mins is not None:
        raise ValueError("codes have zeros or mins, not both")
    wanted = (-(-num_inputs // group_size), num_outputs)
    for what, given in (
        ("scales", meaning.scales),
        ("zeros", meaning.zeros),
        ("mins", meaning.mins),
    ):
        if given is not None and given.shape != wanted:
            raise ValueError(f"{what} of shape {tuple(given.shape)} were given; {wanted} is needed")


def _to_half(numbers: Tensor) -> tuple[Tensor, float]:
    """Numbers as float16, and the power of two that they are to be multiplied by.

    It is 1 unless they would overflow, or lose bits that float16 has.
    Raises: ValueError if one is not finite.
    """
    wide = numbers.float()
    sizes = wide.abs()
    most = float(sizes.max()) if sizes.numel() else 0.0
    if not most < float("inf"):
        raise ValueError("a scale or min of a quantised matrix is not a finite number")
    least = float(sizes[sizes > 0].min()) if most > 0 else 0.0
    if most <= _HALF_MAX and (least >= _LEAST_EXACT or most == 0):
        return wide.to(torch.float16), 1.0
    exponent = int(torch.frexp(torch.tensor(most)).exponent) - 15
    return torch.ldexp(wide, torch.tensor(-exponent)).to(torch.float16), 2.0**exponent


def _tile(numbers: Tensor, num_groups: int) -> Tensor:
    """Of [G, N] as [tiles, num_groups, 16], filled up with zeros."""
    given_groups, num_outputs = numbers.shape
    padding = (0, -num_outputs % TILE_OUTPUTS, 0, num_groups - given_groups)
    padded = torch.nn.functional.pad(numbers, padding)
    tiles: Tensor = padded.unflatten(1, (-1, TILE_OUTPUTS)).transpose(0, 1).contiguous()
    return tiles


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _run_packing(name: str, rows: ctypes.Structure, packed: Tensor) -> None:
    workspace = own_workspace()
    pack = getattr(workspace.library, name)
    pack(ctypes.byref(rows), ctypes.c_void_p(packed.data_ptr()), workspace.handle)
