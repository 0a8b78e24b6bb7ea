"""In what each matrix of a model is kept: the one place that decides, and reads it so."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from forebay_budget.inspection import ModelError
from forebay_budget.packing import Packing
from forebay_budget.rounding import choose_group_size, has_zeros, rounds_part
from forebay_kernels.quant_matrix import QuantMatrix, quantise
from forebay_runtime.loading.checkpoint import Checkpoint, PackedCheckpoint, read_tensor
from forebay_runtime.loading.cut import Cut
from forebay_runtime.loading.packed_matrices import PackedSource
from forebay_runtime.models.placement import Placement

Format = Literal["plain", "packed", "rounded"]


class MatrixFormats:
    """A checkpoint's matrices, each as it is packed, or rounded as it is read, or plain."""

    def __init__(
        self, checkpoint: Checkpoint, placement: Placement, packing: Packing | None
    ) -> None:
        """packing: how the checkpoint packs those that it does; None: it packs none."""
        self._checkpoint = checkpoint
        self._placement = placement
        self._packed = None
        if packing is not None and isinstance(checkpoint, PackedCheckpoint):
            self._packed = PackedSource(checkpoint, packing, placement.device, placement.dtype)

    @property
    def quantizes_activations(self) -> bool:
        """Do packed matrices take inputs that are rounded too?"""
        return self._packed is not None and self._packed.packing.quantizes_activations

    def choose(self, name: str) -> Format:
        """What a matrix is kept in; name is its module's."""
        if self._packed is not None and self._packed.has(name):
            return "packed"
        is_rounded = self._placement.rounded_bits is not None
        return "rounded" if is_rounded and rounds_part(name.rpartition(".")[2]) else "plain"

    def read(self, name: str, cut: Cut) -> Tensor | QuantMatrix:
        """This rank's part of a matrix; cut has the shape of all of it.

        Raises: ModelError.
        """
        form = self.choose(name)
        if form == "packed" and self._packed is not None:
            return self._packed.read(name, cut)
        weight = read_tensor(self._checkpoint, f"{name}.weight", self._empty(cut), cut)
        return weight if form == "plain" else self._round(name, weight, cut.shape[1])

    def _round(self, name: str, weight: Tensor, num_inputs: int) -> QuantMatrix:
        """Round to nearest; a rank's part comes to the same numbers as in the whole matrix."""
        bits, group_size = self._placement.rounded_bits or 0, choose_group_size(num_inputs)
        if group_size is None:
            raise ModelError(
                "UnsupportedQuantization",
                f"{name} has {num_inputs} inputs, which no group of --quantization divides; "
                "choose None.",
            )
        return quantise(weight, bits, group_size, symmetric=not has_zeros(bits))

    def _empty(self, cut: Cut) -> Tensor:
        shape = [
            size if part == slice(None) else part.stop - part.start
            for size, part in zip(cut.shape, (cut.rows, cut.columns), strict=True)
        ]
        return torch.empty(shape, dtype=self._placement.dtype, device=self._placement.device)
