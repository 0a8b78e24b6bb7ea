"""One program a row draws its token, by what the survey found; a greedy row ends with the best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.architecture import architecture_of
from forebay_kernels.gpu.launch_tables.sampling import DRAW, SURVEY
from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.sampling.filtered import draw_filtered
from forebay_kernels.gpu.sampling.race import first_best, race
from forebay_kernels.gpu.sampling.row import HEAT, row_of, weigh
from forebay_kernels.gpu.sampling.survey import survey_kernel
from forebay_kernels.gpu.variant import Variant, divisible
from forebay_kernels.outcome import BROKEN, DRAWN, NOTHING_LEFT

_DRAWN, _NOTHING_LEFT, _BROKEN = (tl.constexpr(each) for each in (DRAWN, NOTHING_LEFT, BROKEN))


@triton.jit
def _draw_by_heats(
    row_scores,
    heat_best,
    heat_sums,
    size,
    num_heats,
    best,
    temperature,
    min_p,
    key,
    TILE: tl.constexpr,
):
    """Race by heats, then among the tokens of the one that won."""
    if min_p > 0:
        for start in range(0, num_heats, TILE // HEAT):
            heats = start + tl.arange(0, TILE // HEAT)
            columns = heats[:, None] * HEAT + tl.arange(0, HEAT)[None, :]
            weights = weigh(row_scores, columns, size, best, temperature, min_p)
            tl.store(heat_sums + heats, tl.sum(weights, 1), heats < num_heats)
        tl.debug_barrier()
    leader = tl.full([TILE], -1.0, tl.float32)
    names = tl.full([TILE], 0, tl.int32)
    for start in range(0, num_heats, TILE):
        heats = start + tl.arange(0, TILE)
        is_in = heats < num_heats
        sums = tl.load(heat_sums + heats, is_in, 0.0)
        if min_p <= 0:
            own_best = tl.load(heat_best + heats, is_in, float("-inf"))
            sums *= tl.exp((own_best - best) / temperature)
        came = tl.where(is_in & (sums > 0), race(sums, size + heats, key), -1.0)
        names = tl.where(came > leader, heats, names)
        leader = tl.maximum(leader, came)
    columns = first_best(leader, names) * HEAT + tl.arange(0, HEAT)
    weights = weigh(row_scores, columns, size, best, temperature, min_p)
    came = tl.where(columns < size, race(weights, columns, key), -1.0)
    return first_best(came, columns)


@triton.jit(
    do_not_specialize=["num_heats"],
    do_not_specialize_on_alignment=[
        "sources",
        "temperatures",
        "top_ks",
        "top_ps",
        "min_ps",
        "keys",
        "count_rows",
        "token_ids",
        "outcomes",
    ],
)
def _draw_kernel(
    logits,  # [R, V] float32
    edited,  # [E, V] float32
    sources,  # [R] int32: the row of edited, or -1
    temperatures,  # [R] float32, 0 where the best is taken
    top_ks,  # [R] int32, 0 for all
    top_ps,  # [R] float32
    min_ps,  # [R] float32
    keys,  # [R] int64: each row's chance
    count_rows,  # [R] int32: the row of counts, or -1
    counts,  # [slots, V] int16: twice how often each token was drawn, and 1 for the prompt's
    heat_best,  # [R, num_heats] float32
    heat_sums,  # [R, num_heats] float32
    token_ids,  # [R] int64
    outcomes,  # [R] int64
    logits_stride,
    edited_stride,
    size,  # V
    num_heats,
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    row_scores = row_of(logits, edited, sources, row, logits_stride, edited_stride)
    heat_best += row * num_heats
    heat_sums += row * num_heats
    leader = tl.full([TILE], float("-inf"), tl.float32)
    names = tl.full([TILE], 0, tl.int32)
    for start in range(0, num_heats, TILE):
        heats = start + tl.arange(0, TILE)
        bests = tl.load(heat_best + heats, heats < num_heats, float("-inf"))
        names = tl.where(bests > leader, heats, names)
        leader = tl.maximum(leader, bests)
    best = tl.max(leader)
    is_finite = (best > float("-inf")) & (best < float("inf"))
    token_id = tl.full([], 0, tl.int32)
    if is_finite:
        columns = first_best(leader, names) * HEAT + tl.arange(0, HEAT)
        scores = tl.load(row_scores + columns, columns < size, float("-inf"))
        token_id = first_best(scores, columns)
        temperature = tl.load(temperatures + row)
        if temperature > 0:
            top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
            min_p, key = tl.load(min_ps + row), tl.load(keys + row)
            if (top_k > 0) | (top_p < 1.0):
                token_id = draw_filtered(
                    row_scores,
                    heat_best,
                    heat_sums,
                    size,
                    num_heats,
                    best,
                    temperature,
                    top_k,
                    top_p,
                    min_p,
                    key,
                    TILE,
                )
            else:
                token_id = _draw_by_heats(
                    row_scores,
                    heat_best,
                    heat_sums,
                    size,
                    num_heats,
                    best,
                    temperature,
                    min_p,
                    key,
                    TILE,
                )
    tl.store(token_ids + row, token_id.to(tl.int64))
    is_banned = (best == float("-inf")) & (tl.load(sources + row) >= 0)
    outcome = tl.where(is_finite, _DRAWN, tl.where(is_banned, _NOTHING_LEFT, _BROKEN))
    tl.store(outcomes + row, outcome.to(tl.int64))
    count_row = tl.load(count_rows + row).to(tl.int64)
    if count_row >= 0:
        place = counts + count_row * size + token_id
        # Twice 16383 is what int16 holds; no penalty tells so many from more.
        counted = tl.load(place).to(tl.int32)
        tl.store(place, tl.where(counted < 32766, counted + 2, counted).to(tl.int16))


@dataclass(frozen=True)
class Wishes:
    """How each row's token is drawn, on the device.

    sources: [R] int32, the row of the edited scores that stands for this one, or -1.
    temperatures: [R] float32, 0 where the best token is taken. top_ks: [R] int32, 0 for all.
    top_ps, min_ps: [R] float32. keys: [R] int64, 63 bits of chance.
    count_rows: [R] int32, the row of counts that the token is counted in, or -1.
    """

    sources: Tensor
    temperatures: Tensor
    top_ks: Tensor
    top_ps: Tensor
    min_ps: Tensor
    keys: Tensor
    count_rows: Tensor


def draw(logits: Tensor, edited: Tensor, wishes: Wishes, counts: Tensor) -> Tensor:
    """A token a row; drawn tokens are counted in place.

    Shapes: logits [R, V], edited [E, V] float32, rows apart by any stride; counts [slots, V] int16,
    twice how often each token was drawn, plus one where it is in the prompt; out [2, R] int64:
    token ids, and below them what came of each row, as in outcome.
    """
    num_rows, size = logits.shape
    drawn = torch.empty(2, num_rows, dtype=torch.int64, device=logits.device)
    if num_rows == 0:
        return drawn
    architecture = architecture_of(logits.device)
    survey, last = SURVEY.choose(architecture), DRAW.choose(architecture, size=size)
    num_programs = triton.cdiv(size, HEAT.value * survey.tiles["HEATS"])
    num_heats = num_programs * survey.tiles["HEATS"]
    heats = torch.empty(2, num_rows, num_heats, dtype=torch.float32, device=logits.device)
    sizes = (logits.stride(0), edited.stride(0), size, num_heats)
    survey_kernel[(num_rows, num_programs)](
        logits,
        edited,
        wishes.sources,
        wishes.temperatures,
        heats[0],
        heats[1],
        *sizes,
        **survey.tiles,
        num_warps=survey.num_warps,
        num_stages=survey.num_stages,
    )
    _draw_kernel[(num_rows,)](
        logits,
        edited,
        wishes.sources,
        wishes.temperatures,
        wishes.top_ks,
        wishes.top_ps,
        wishes.min_ps,
        wishes.keys,
        wishes.count_rows,
        counts,
        heats[0],
        heats[1],
        drawn[0],
        drawn[1],
        *sizes,
        **last.tiles,
        num_warps=last.num_warps,
        num_stages=last.num_stages,
    )
    return drawn


def variants(shape: ModelShape) -> Iterator[Variant]:
    """A survey and a draw, for all vocabularies that divide by 16."""
    size, num_rows = shape.vocab_size, 64
    survey, last = SURVEY.choose(shape.architecture), DRAW.choose(shape.architecture, size=size)
    numbers = dict.fromkeys(("logits_stride", "edited_stride", "size", "num_heats"), "i32")
    scores = dict.fromkeys(("logits", "edited"), "*fp32")
    heats = dict.fromkeys(("heat_best", "heat_sums"), "*fp32")
    rows = {"sources": "*i32", "temperatures": "*fp32"}
    aligned = divisible(logits_stride=size, edited_stride=size, size=size)
    kind = "" if size % 16 == 0 else f"-v{size}"
    yield Variant(
        f"survey/fp32{kind}",
        survey_kernel,
        {**scores, **rows, **heats, **numbers},
        dict(survey.tiles),
        survey,
        aligned=aligned | {*scores, *heats},
        sized_for=f"R={num_rows} V={size}",
        bytes_moved=num_rows * size * 4,
    )
    yield Variant(
        f"draw/fp32{kind}",
        _draw_kernel,
        {
            **scores,
            **rows,
            "top_ks": "*i32",
            **dict.fromkeys(("top_ps", "min_ps"), "*fp32"),
            "keys": "*i64",
            "count_rows": "*i32",
            "counts": "*i16",
            **heats,
            **dict.fromkeys(("token_ids", "outcomes"), "*i64"),
            **numbers,
        },
        dict(last.tiles),
        last,
        aligned=aligned | {*scores, *heats, "counts"},
    )
