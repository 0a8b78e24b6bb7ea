"""Reads a rank's part of a model's tensors into place, several side by side in one product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from forebay_budget.blueprint import Blueprint
from forebay_kernels import ops
from forebay_kernels.cpu.packed_matrix import pack_coded, pack_dense
from forebay_runtime.loading.checkpoint import Checkpoint, read_tensor
from forebay_runtime.loading.cut import ALL, Cut
from forebay_runtime.models.link import ALONE, Link
from forebay_runtime.models.matrix_formats import MatrixFormats
from forebay_runtime.models.placement import NativeForm, Placement
from forebay_runtime.models.product import Product, ProductForm, Table, build_product
from forebay_runtime.models.shard import Block


@dataclass(frozen=True)
class Piece:
    """A rank's part of a stored matrix, num_rows of its outputs."""

    name: str
    cut: Cut
    num_rows: int


class WeightReader:
    """One checkpoint's tensors, by Hugging Face's names, for one place."""

    def __init__(
        self, checkpoint: Checkpoint, placement: Placement, blueprint: Blueprint, link: Link = ALONE
    ) -> None:
        """link: to the ranks that hold the other parts of what split_outputs and split_inputs read;
        all else is read whole."""
        self._checkpoint = checkpoint
        self._placement = placement
        self._norm_offset = blueprint.family.norm_offset
        self._link = link
        self._formats = MatrixFormats(checkpoint, placement, blueprint.packing)

    @property
    def native(self) -> NativeForm | None:
        """How a CPU's own kernels compute products; None: they do not."""
        return self._placement.native

    def vector(self, name: str, size: int) -> Tensor:
        """A vector in float32, on the CPU: factors, that weights are made of."""
        return read_tensor(self._checkpoint, name, torch.empty(size))

    def norm(self, name: str, size: int) -> Tensor:
        """A norm's weights. Stored less an offset they stay wide, as they were meant to round."""
        if not self._norm_offset:
            return read_tensor(self._checkpoint, name, self._empty(size))
        weight = torch.empty(size, device=self._placement.device)
        read_tensor(self._checkpoint, name, weight)
        return weight if self._checkpoint.has_whole_norms else weight.add_(self._norm_offset)

    def vocabulary(self, name: str, num_rows: int, num_columns: int, num_own_rows: int) -> Table:
        """This rank's num_own_rows of a matrix; those beyond its num_rows are zeros."""
        start = min(num_rows, self._link.shard.rank * num_own_rows)
        stop = min(num_rows, start + num_own_rows)
        cut = Cut((num_rows, num_columns), slice(start, stop))
        if stop - start == num_own_rows:
            codes = self._formats.read_codes(name, cut)
            if codes is not None:
                return pack_coded(codes)
        out = self._empty_matrix(num_own_rows, num_columns)
        read_tensor(self._checkpoint, name, out[: stop - start], cut)
        out[stop - start :] = 0
        return out if self._placement.native is None else pack_dense(out)

    def linear(self, prefix: str, parts: Mapping[str, int], num_inputs: int) -> Product:
        """One product of several parts (name → outputs), whole, with the biases that are there."""
        blocks = {name: (Block(num_rows),) for name, num_rows in parts.items()}
        return self.split_outputs(prefix, blocks, num_inputs)

    def split_outputs(
        self, prefix: str, parts: Mapping[str, Sequence[Block]], num_inputs: int
    ) -> Product:
        """One product of several parts (name → blocks of outputs), of each block this rank's own.

        A part with several blocks is a matrix that was stored fused.
        """
        pieces = []
        for part, blocks in parts.items():
            num_rows = sum(block.num_rows for block in blocks)
            for block, rows in zip(blocks, _own_rows(blocks), strict=True):
                cut = Cut((num_rows, num_inputs), rows)
                pieces.append(Piece(f"{prefix}.{part}", cut, block.num_own_rows))
        return self._product(pieces, num_inputs, self._biases(pieces))

    def split_inputs(self, name: str, num_outputs: int, num_inputs: int) -> Product:
        """This rank's inputs of a product, whose results add up over ranks: one has the bias."""
        columns = self._link.shard.part(num_inputs)
        piece = Piece(name, Cut((num_outputs, num_inputs), columns=columns), num_outputs)
        bias = None if self._link.shard.rank else self._biases([piece])
        return self._product([piece], columns.stop - columns.start, bias, self._link)

    def _product(
        self, pieces: Sequence[Piece], num_columns: int, bias: Tensor | None, link: Link = ALONE
    ) -> Product:
        """link: to the ranks that have the other inputs."""
        native = self.native
        if any(self._formats.choose(piece.name) != "plain" for piece in pieces):
            matrices = [self._formats.read(piece.name, piece.cut) for piece in pieces]
            inputs = link if self._formats.quantizes_activations else None
            return build_product(matrices, bias, ProductForm(inputs, native))
        sizes = [piece.num_rows for piece in pieces]
        weight = self._empty_matrix(sum(sizes), num_columns)
        for piece, rows in zip(pieces, weight.split(sizes), strict=True):
            read_tensor(self._checkpoint, f"{piece.name}.weight", rows, piece.cut)
        if native is not None:
            return build_product([weight], bias, ProductForm(native=native))
        return ops.Linear(weight, bias)

    def _biases(self, pieces: Sequence[Piece]) -> Tensor | None:
        """The biases of all pieces, zeros for those without one; None if there is none."""
        has_bias = [self._checkpoint.has(f"{piece.name}.bias") for piece in pieces]
        if not any(has_bias):
            return None
        sizes = [piece.num_rows for piece in pieces]
        bias = self._empty(sum(sizes)).zero_()
        for piece, rows, is_there in zip(pieces, bias.split(sizes), has_bias, strict=True):
            if is_there:
                cut = Cut(piece.cut.shape[:1], piece.cut.rows)
                read_tensor(self._checkpoint, f"{piece.name}.bias", rows, cut)
        return bias

    def _empty_matrix(self, *shape: int) -> Tensor:
        """In the format that plain matrices are kept in, where that is another one."""
        native = self._placement.native
        dtype = self._placement.dtype if native is None else native.dtype
        return torch.empty(shape, dtype=dtype, device=self._placement.device)

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self._placement.dtype, device=self._placement.device)


def _own_rows(blocks: Sequence[Block]) -> Iterator[slice]:
    """Where in the stored matrix this rank's rows of each block lie."""
    start = 0
    for block in blocks:
        own = block.shard.part(block.num_rows)
        is_all = len(blocks) == 1 and block.shard.is_whole
        yield ALL if is_all else slice(start + own.start, start + own.stop)
        start += block.num_rows
