"""What changes a row's scores before its token is drawn: penalties and bans, in place.

A program takes a part of a row, and no row sees another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.architecture import architecture_of
from forebay_kernels.gpu.launch_tables.elementwise import TABLE
from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.variant import Variant, divisible

_PER_ROW = ("count_rows", "repetitions", "frequencies", "presences", "mask_rows")


@triton.jit(do_not_specialize_on_alignment=[*_PER_ROW, "masks"], do_not_specialize=["mask_stride"])
def _edit_scores_kernel(
    scores,  # [E, V] float32
    count_rows,  # [E] int32: the row of counts, or -1
    repetitions,  # [E] float32
    frequencies,  # [E] float32
    presences,  # [E] float32
    mask_rows,  # [E] int32: the row of masks, or -1
    counts,  # [slots, V] int16: twice how often each token was drawn, and 1 for the prompt's
    masks,  # [M, bytes] uint8: a bit for each token that may come, lowest first
    scores_stride,
    mask_stride,
    size,  # V
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    is_in = columns < size
    place = scores + row * scores_stride + columns
    own = tl.load(place, is_in, 0.0)
    count_row = tl.load(count_rows + row).to(tl.int64)
    if count_row >= 0:
        counted = tl.load(counts + count_row * size + columns, is_in, 0).to(tl.int32)
        repetition = tl.load(repetitions + row)
        repeated = tl.where(own > 0, own / repetition, own * repetition)
        own = tl.where(counted > 0, repeated, own)
        lost = (counted >> 1).to(tl.float32) * tl.load(frequencies + row) + tl.load(presences + row)
        own = tl.where(counted > 1, own - lost, own)
    mask_row = tl.load(mask_rows + row).to(tl.int64)
    if mask_row >= 0:
        byte = tl.load(masks + mask_row * mask_stride + columns // 8, is_in, 0).to(tl.int32)
        own = tl.where((byte >> (columns % 8)) & 1 == 1, own, float("-inf"))
    tl.store(place, own, is_in)


@dataclass(frozen=True)
class EditedRows:
    """How each row's scores are changed, on the device.

    count_rows: [E] int32, the row of counts that penalties go by, or -1. repetitions, frequencies,
    presences: [E] float32, as OpenAI's API and CTRL define them. mask_rows: [E] int32, the row of
    masks, or -1.
    """

    count_rows: Tensor
    repetitions: Tensor
    frequencies: Tensor
    presences: Tensor
    mask_rows: Tensor


def edit_scores(scores: Tensor, rows: EditedRows, counts: Tensor, masks: Tensor) -> None:
    """Apply penalties, then bans, in place.

    Shapes: scores [E, V] float32; counts [slots, V] int16, twice how often each token was drawn,
    plus one where it is in the prompt (which counts for repetition alone); masks [M, bytes] uint8,
    a bit for each token that may come, lowest first.
    """
    num_rows, size = scores.shape
    if num_rows == 0:
        return
    launch = TABLE.choose(architecture_of(scores.device))
    _edit_scores_kernel[(num_rows, triton.cdiv(size, launch.tiles["TILE"]))](
        scores,
        rows.count_rows,
        rows.repetitions,
        rows.frequencies,
        rows.presences,
        rows.mask_rows,
        counts,
        masks,
        scores.stride(0),
        masks.stride(0),
        size,
        **launch.tiles,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )


def variants(shape: ModelShape) -> Iterator[Variant]:
    """One for all vocabularies that divide by 16."""
    size, launch = shape.vocab_size, TABLE.choose(shape.architecture)
    yield Variant(
        f"edit_scores/fp32{'' if size % 16 == 0 else f'-v{size}'}",
        _edit_scores_kernel,
        {
            "scores": "*fp32",
            **dict.fromkeys(("count_rows", "mask_rows"), "*i32"),
            **dict.fromkeys(("repetitions", "frequencies", "presences"), "*fp32"),
            "counts": "*i16",
            "masks": "*u8",
            **dict.fromkeys(("scores_stride", "mask_stride", "size"), "i32"),
        },
        dict(launch.tiles),
        launch,
        aligned=divisible(scores=0, counts=0, scores_stride=size, size=size),
        sized_for=f"E=64 V={size}",
        bytes_moved=64 * size * 10,
    )
