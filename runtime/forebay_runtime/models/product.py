"""The product of activations with a matrix, whatever the matrix is kept in.

Where a CPU's own kernels run, matrices are packed for them; a link of inputs is theirs no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from forebay_kernels import code_matrix, ops
from forebay_kernels.code_matrix import CodeMatrix
from forebay_kernels.cpu.native_structs import InputForm
from forebay_kernels.cpu.packed_matrix import PackedMatrix, pack_coded, pack_dense, pack_quant
from forebay_kernels.cpu.product import CpuLinear
from forebay_kernels.quant_matrix import QuantMatrix, can_merge, merge_rows
from forebay_runtime.models.link import Link
from forebay_runtime.models.placement import NativeForm

Matrix = Tensor | QuantMatrix | CodeMatrix | PackedMatrix
Table = Tensor | PackedMatrix
"""A matrix whose rows are looked up too."""


class Product(Protocol):
    """x @ weight.T + bias. Shapes: x [T, I]; out [T, N]."""

    num_bytes: int
    """Of weight and bias, as they are kept."""

    def __call__(self, x: Tensor) -> Tensor:
        """The product."""

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """The product plus residual [T, N], which may be written over."""


class Row:
    """Products of the same inputs, their outputs side by side.

    For parts of one product that are kept in different ways, so that no kernel takes them as one.
    """

    def __init__(self, parts: Sequence[Product]) -> None:
        self.num_bytes = sum(part.num_bytes for part in parts)
        self.parts = tuple(parts)

    def __call__(self, x: Tensor) -> Tensor:
        """The product."""
        return ops.multiply_row(x, self.parts)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """The product plus residual [T, N]."""
        return ops.add(residual, self(x))


@dataclass(frozen=True)
class ProductForm:
    """What products take in, and what computes them.

    inputs: where quantised matrices take inputs that are rounded as the checkpoint says, the link
    to the ranks that have the others of a row; None: inputs stay as they are, or are rounded as the
    kernels do. native: how a CPU's own kernels compute; None: they do not.
    """

    inputs: Link | None = None
    native: NativeForm | None = None

    @property
    def is_native(self) -> bool:
        """Do a CPU's own kernels compute them?"""
        return self.native is not None and self.inputs is None


def build_product(
    matrices: Sequence[Matrix], bias: Tensor | None, form: ProductForm = ProductForm()
) -> Product:
    """Take matrices of the same inputs over, as one product or side by side where they cannot be.

    Outputs come in their order; bias [N] is of all of them.
    """
    parts: list[Product] = []
    row = 0
    runs = _pack(matrices, form.native) if form.native and form.is_native else _runs(matrices)
    for same in runs:
        num_rows = sum(_num_rows(matrix) for matrix in same)
        own_bias = None if bias is None else bias[row : row + num_rows]
        parts.append(_build(same, own_bias, form))
        row += num_rows
    return parts[0] if len(parts) == 1 else Row(parts)


def table_bytes(table: Table) -> int:
    """Bytes of it."""
    return table.nbytes if isinstance(table, Tensor) else table.num_bytes


def build_head(table: Table, native: NativeForm | None) -> Product:
    """The product with a table that is used elsewhere too, and stays as it is."""
    if isinstance(table, PackedMatrix):
        return _native_product(table, None, native)
    # Repacked it would be held twice, as rows are looked up in the original.
    return ops.Linear(table, repack=False)


def _pack(matrices: Sequence[Matrix], native: NativeForm) -> list[list[Matrix]]:
    return [[_packed(same, native)] for same in _runs(matrices)]


def _packed(same: list[Matrix], native: NativeForm) -> PackedMatrix:
    """Matrices that can be one, packed as one: parts would get scales that do not go together."""
    match same:
        case [PackedMatrix() as matrix]:
            return matrix
        case [CodeMatrix(), *_]:
            return pack_coded(
                code_matrix.merge_rows([m for m in same if isinstance(m, CodeMatrix)])
            )
        case [QuantMatrix(), *_]:
            return pack_quant(merge_rows([m for m in same if isinstance(m, QuantMatrix)]))
    return pack_dense(torch.cat([m for m in same if isinstance(m, Tensor)]).to(native.dtype))


def _runs(matrices: Sequence[Matrix]) -> list[list[Matrix]]:
    """Neighbours that can be one product."""
    runs: list[list[Matrix]] = []
    for matrix in matrices:
        if runs and _can_merge(runs[-1][0], matrix):
            runs[-1].append(matrix)
        else:
            runs.append([matrix])
    return runs


def _can_merge(one: Matrix, other: Matrix) -> bool:
    if isinstance(one, QuantMatrix) and isinstance(other, QuantMatrix):
        return can_merge(one, other)
    if isinstance(one, CodeMatrix) and isinstance(other, CodeMatrix):
        return code_matrix.can_merge(one, other)
    return isinstance(one, Tensor) and isinstance(other, Tensor)


def _build(matrices: list[Matrix], bias: Tensor | None, form: ProductForm) -> Product:
    first, inputs = matrices[0], form.inputs
    if isinstance(first, PackedMatrix):
        return _native_product(first, bias, form.native)
    quantised = [matrix for matrix in matrices if isinstance(matrix, QuantMatrix)]
    if not quantised:
        return ops.Linear(torch.cat([m for m in matrices if isinstance(m, Tensor)]), bias)
    matrix = quantised[0] if len(quantised) == 1 else merge_rows(quantised)
    if inputs is None:
        return ops.QuantLinear(matrix, bias)
    return ops.Int8Linear(matrix, bias, lambda largest: inputs.join(largest).amax(-1, True))


def _native_product(
    matrix: PackedMatrix, bias: Tensor | None, native: NativeForm | None
) -> CpuLinear:
    return CpuLinear(matrix, bias, InputForm.EXACT if native is None else native.input_form)


def _num_rows(matrix: Matrix) -> int:
    return len(matrix) if isinstance(matrix, Tensor) else matrix.num_outputs
