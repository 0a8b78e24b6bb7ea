"""A rank's part of a matrix that a checkpoint packs, by AWQ, GPTQ or compressed-tensors.

Bits are moved, nothing is rounded: a QuantMatrix stands for the same numbers as the file. Packed
words hold neighbours, so a part is read from word to word and what is beside it is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from forebay_budget.inspection import ModelError
from forebay_budget.packing import Packing
from forebay_kernels.quant_formats import (
    GptqLayout,
    PackedLayout,
    from_awq,
    from_gptq,
    from_packed,
    from_signed,
)
from forebay_kernels.quant_matrix import QuantMatrix
from forebay_runtime.loading.checkpoint import PackedCheckpoint
from forebay_runtime.loading.cut import ALL, Cut

_WORD_BITS = 32


@dataclass(frozen=True)
class PackedSource:
    """Where packed matrices are read from, how they are packed, and where they go.

    dtype: of activations.
    """

    checkpoint: PackedCheckpoint
    packing: Packing
    device: torch.device
    dtype: torch.dtype

    def has(self, name: str) -> bool:
        """Is this matrix packed? Those that the quantisation skipped are plain."""
        return self.checkpoint.has(f"{name}.{_MARKS[self.packing.layout]}")

    def read(self, name: str, cut: Cut) -> QuantMatrix:
        """The part of a matrix that cut says; its shape is the whole matrix's.

        Raises: ModelError naming the matrix, if its index of groups is not what can be served.
        """
        num_rows, num_columns = cut.shape
        rows, columns = _span(cut.rows, num_rows), _span(cut.columns, num_columns)
        in_words = self._in_words(rows, num_rows)
        try:
            matrix = _READERS[self.packing.layout](self, name, in_words, columns)
        except ValueError as error:
            raise ModelError(
                "UnsupportedQuantization", f"{name} cannot be served as it is packed: {error}."
            ) from error
        if in_words != rows:
            matrix = matrix.split_rows(rows.start - in_words.start, rows.stop - in_words.start)
        return replace(
            _without_even_zeros(matrix), scales=matrix.scales.to(self._scale_dtype(matrix.scales))
        )

    def _scale_dtype(self, stored: Tensor) -> torch.dtype:
        """What scales are kept in: as stored, but where a GPU's kernels are compiled for another.

        Those for bfloat16 take the float16 of AWQ's and GPTQ's checkpoints as it is.
        """
        if self.packing.quantizes_activations:
            return torch.float32
        is_half = stored.dtype == torch.float16 and self.dtype == torch.bfloat16
        return stored.dtype if is_half or self.device.type == "cpu" else self.dtype

    def raw(self, name: str, rows: slice, columns: slice) -> Tensor:
        """A part of a stored tensor, of whatever dtype, on the device."""
        return self.checkpoint.read_raw(name, rows, columns).to(self.device)

    def words(self, span: slice) -> slice:
        """Where the words of a span of numbers lie."""
        a_word = _WORD_BITS // self.packing.bits
        return slice(span.start // a_word, -(-span.stop // a_word))

    def groups(self, columns: slice) -> slice:
        """Where the scales of a span of inputs lie."""
        size = self.packing.group_size
        return slice(columns.start // size, columns.stop // size) if size else slice(0, 1)

    @property
    def group(self) -> int | None:
        """Inputs that share a scale; None: all of them."""
        return self.packing.group_size or None

    def _in_words(self, rows: slice, num_rows: int) -> slice:
        """The rows of whole words that have these in them."""
        a_word = _WORD_BITS // self.packing.bits
        stop = -(-rows.stop // a_word) * a_word
        return slice(rows.start // a_word * a_word, min(stop, num_rows))


def _read_awq(source: PackedSource, name: str, rows: slice, columns: slice) -> QuantMatrix:
    words, groups = source.words(rows), source.groups(columns)
    return from_awq(
        source.raw(f"{name}.qweight", columns, words),
        source.raw(f"{name}.qzeros", groups, words),
        source.raw(f"{name}.scales", groups, rows),
        source.group,
    )


def _read_gptq(source: PackedSource, name: str, rows: slice, columns: slice) -> QuantMatrix:
    packing, g_idx = source.packing, None
    if packing.is_reordered and source.group:
        g_idx = source.raw(f"{name}.g_idx", slice(None), slice(None))
    # An order of its own puts a rank's inputs anywhere; QuantMatrix then picks them.
    stored = columns if g_idx is None else slice(0, len(g_idx))
    groups = source.groups(stored)
    matrix = from_gptq(
        source.raw(f"{name}.qweight", source.words(stored), rows),
        source.raw(f"{name}.qzeros", groups, source.words(rows)),
        source.raw(f"{name}.scales", groups, rows),
        g_idx,
        GptqLayout(packing.bits, source.group, packing.stored_zero_offset),
    )
    return _pick(matrix, columns, stored)


def _read_packed(source: PackedSource, name: str, rows: slice, columns: slice) -> QuantMatrix:
    packing, g_idx, zeros = source.packing, None, None
    if packing.is_reordered and source.group:
        g_idx = source.raw(f"{name}.weight_g_idx", slice(None), slice(None))
    stored = columns if g_idx is None else slice(0, len(g_idx))
    groups = source.groups(stored)
    if packing.has_zeros:
        zeros = source.raw(f"{name}.weight_zero_point", source.words(rows), groups)
    matrix = from_packed(
        source.raw(f"{name}.weight_packed", rows, source.words(stored)),
        zeros,
        source.raw(f"{name}.weight_scale", rows, groups),
        g_idx,
        PackedLayout(packing.bits, source.group),
    )
    return _pick(matrix, columns, stored)


def _read_int8(source: PackedSource, name: str, rows: slice, columns: slice) -> QuantMatrix:
    return from_signed(
        source.raw(f"{name}.weight", rows, columns),
        source.raw(f"{name}.weight_scale", rows, source.groups(columns)),
        source.group,
    )


_MARKS = {
    "awq": "qweight",
    "gptq": "qweight",
    "packed": "weight_packed",
    "int8": "weight_scale",
}
"""A tensor that only packed matrices have."""
_READERS = {"awq": _read_awq, "gptq": _read_gptq, "packed": _read_packed, "int8": _read_int8}


def _pick(matrix: QuantMatrix, columns: slice, stored: slice) -> QuantMatrix:
    return matrix if columns == stored else matrix.split_columns(columns.start, columns.stop)


def _without_even_zeros(matrix: QuantMatrix) -> QuantMatrix:
    """Zero points that are all the middle code, as symmetric checkpoints have them, say nothing."""
    middle = 2 ** (matrix.bits - 1)
    if matrix.zeros is None or bool((matrix.zeros != middle).any()):
        return matrix
    return replace(matrix, zeros=None)


def _span(part: slice, size: int) -> slice:
    return slice(0, size) if part == ALL else part
