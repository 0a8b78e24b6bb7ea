"""In what each matrix of a model is kept: the one place that decides, and reads it so."""

from __future__ import annotations

from typing import Literal, TypeVar

import torch
from torch import Tensor

from forebay_budget.inspection import ModelError
from forebay_budget.packing import Packing
from forebay_budget.rounding import choose_group_size, has_zeros, rounds_part
from forebay_kernels.code_matrix import CodeMatrix
from forebay_kernels.quant_matrix import QuantMatrix, quantise
from forebay_runtime.loading.checkpoint import (
    CODE_STEP,
    Checkpoint,
    CodedCheckpoint,
    PackedCheckpoint,
    check_shape,
    read_tensor,
)
from forebay_runtime.loading.cut import ALL, Cut
from forebay_runtime.loading.packed_matrices import PackedSource
from forebay_runtime.models.placement import Placement

Format = Literal["plain", "packed", "coded", "rounded"]
Few = TypeVar("Few", QuantMatrix, CodeMatrix)
"""A matrix of few bits."""


class MatrixFormats:
    """A checkpoint's matrices, each packed or coded as it is, rounded as it is read, or plain."""

    def __init__(
        self, checkpoint: Checkpoint, placement: Placement, packing: Packing | None
    ) -> None:
        """packing: how the checkpoint packs those that it does; None: it packs none."""
        self._checkpoint = checkpoint
        self._placement = placement
        self._packed = None
        if packing is not None and isinstance(checkpoint, PackedCheckpoint):
            self._packed = PackedSource(checkpoint, packing, placement.device, placement.dtype)
        self._coded = None
        if placement.native is not None and isinstance(checkpoint, CodedCheckpoint):
            self._coded = checkpoint

    @property
    def quantizes_activations(self) -> bool:
        """Do packed matrices take inputs that are rounded too?"""
        return self._packed is not None and self._packed.packing.quantizes_activations

    def choose(self, name: str) -> Format:
        """What a matrix is kept in; name is its module's."""
        if self._packed is not None and self._packed.has(name):
            return "packed"
        is_rounded = self._placement.rounded_bits is not None
        if is_rounded and rounds_part(name.rpartition(".")[2]):
            return "rounded"
        is_coded = self._coded is not None and self._coded.has_codes(f"{name}.weight")
        return "coded" if is_coded else "plain"

    def read(self, name: str, cut: Cut) -> Tensor | QuantMatrix | CodeMatrix:
        """This rank's part of a matrix; cut has the shape of all of it.

        Raises: ModelError.
        """
        form = self.choose(name)
        if form == "packed" and self._packed is not None:
            return _finite(self._packed.read(name, cut), name)
        coded = self.read_codes(f"{name}.weight", cut) if form == "coded" else None
        if coded is not None:
            return coded
        weight = read_tensor(self._checkpoint, f"{name}.weight", self._empty(cut), cut)
        return self._round(name, weight, cut.shape[1]) if form == "rounded" else weight

    def read_codes(self, name: str, cut: Cut) -> CodeMatrix | None:
        """This rank's part of a tensor as codes; None if it is none, or cannot be cut as such.

        Raises: ModelError.
        """
        if self._coded is None or not self._coded.has_codes(name) or not _is_in_steps(cut):
            return None
        check_shape(self._coded, name, cut)
        codes = self._coded.read_codes(name, cut.rows, cut.columns)
        return _finite(codes, self._coded.stored_name(name))

    def _round(self, name: str, weight: Tensor, num_inputs: int) -> QuantMatrix:
        """Round to nearest; a rank's part comes to the same numbers as in the whole matrix."""
        bits = self._placement.rounded_bits or 8
        group_size = choose_group_size(num_inputs, bits)
        if group_size is None:
            raise ModelError(
                "UnsupportedQuantization",
                f"{name} has {num_inputs} inputs, which no group of --quantization divides; "
                "choose None.",
            )
        rounded = quantise(weight, bits, group_size or None, symmetric=not has_zeros(bits))
        return _finite(rounded, name)

    def _empty(self, cut: Cut) -> Tensor:
        shape = [
            size if part == slice(None) else part.stop - part.start
            for size, part in zip(cut.shape, (cut.rows, cut.columns), strict=True)
        ]
        return torch.empty(shape, dtype=self._placement.dtype, device=self._placement.device)


def _finite(matrix: Few, name: str) -> Few:
    """The matrix, if its numbers can be told.

    Raises: ModelError naming it, where a scale is NaN or infinite, of which no product tells more.
    """
    mins = matrix.mins if isinstance(matrix, CodeMatrix) else None
    if all(numbers is None or numbers.isfinite().all() for numbers in (matrix.scales, mins)):
        return matrix
    raise ModelError(
        "IncompleteModel",
        f"{name} has weights that are NaN or infinite; the file is damaged, or was made of a model "
        "that was: get it anew.",
    )


def _is_in_steps(cut: Cut) -> bool:
    """May these inputs be read as codes? A rank's share of them may begin within a group."""
    return cut.columns == ALL or not (cut.columns.start % CODE_STEP or cut.columns.stop % CODE_STEP)
