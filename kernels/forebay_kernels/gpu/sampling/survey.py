"""The survey of a row: of every heat its best score and the sum of its chances."""

from __future__ import annotations

import triton
import triton.language as tl

from forebay_kernels.gpu.sampling.row import HEAT, row_of


@triton.jit(
    do_not_specialize=["num_heats"],
    do_not_specialize_on_alignment=["sources", "temperatures"],
)
def survey_kernel(
    logits,  # [R, V] float32
    edited,  # [E, V] float32: rows that stand for those of logits
    sources,  # [R] int32: the row of edited, or -1
    temperatures,  # [R] float32, 0 where the best is taken
    heat_best,  # [R, num_heats] float32, infinite where a score is NaN
    heat_sums,  # [R, num_heats] float32: of exp((score - best of its heat) / temperature)
    logits_stride,
    edited_stride,
    size,  # V
    num_heats,  # a multiple of HEATS
    HEATS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    heats = tl.program_id(1) * HEATS + tl.arange(0, HEATS)
    columns = heats[:, None] * HEAT + tl.arange(0, HEAT)[None, :]
    scores = tl.load(
        row_of(logits, edited, sources, row, logits_stride, edited_stride) + columns,
        columns < size,
        float("-inf"),
    )
    temperature = tl.load(temperatures + row)
    best = tl.max(scores, 1)
    # An infinite best less itself would be NaN, where all are banned or the model is broken.
    base = tl.where(tl.abs(best) == float("inf"), 0.0, best)[:, None]
    scores = tl.where(scores == float("inf"), 0.0, scores)
    weights = tl.exp((scores - base) / tl.where(temperature > 0, temperature, 1.0))
    is_broken = tl.max(tl.where(scores != scores, 1.0, 0.0), 1) > 0
    place = row * num_heats + heats
    tl.store(heat_best + place, tl.where(is_broken, float("inf"), best))
    tl.store(heat_sums + place, tl.sum(weights, 1))
