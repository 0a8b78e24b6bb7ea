"""Draws a token a row without sorting: a survey of the row, a search for a threshold, a race.

The survey splits each row among programs and keeps of every heat (256 tokens in a row) its best
score and the sum of its chances. The draw is one program a row. A greedy row ends with the best
score; a row without filters races by heats, then within the heat that won; in others a threshold is
found between what top_k and top_p keep and what not, by passes over the row that each tell three
thresholds apart, and those that it keeps race. Among equals at the threshold the lower ids are
kept. Rows see nothing of each other, so a batch does not show.
Source of the race and of its chance: see the portable form, whose tokens these are.
"""

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
from forebay_kernels.gpu.variant import Variant, divisible
from forebay_kernels.outcome import BROKEN, DRAWN, NOTHING_LEFT

HEAT = tl.constexpr(256)
_GOLDEN = tl.constexpr(-0x61C8864680B583EB)
_MIX_1 = tl.constexpr(-0x40A7B892E31B1A47)
_MIX_2 = tl.constexpr(-0x6B2FB644ECCEEE15)
_DRAWN, _NOTHING_LEFT, _BROKEN = (tl.constexpr(each) for each in (DRAWN, NOTHING_LEFT, BROKEN))
_ONE = tl.constexpr(0x3F800000)
"""The bits of 1.0, the largest weight: a token's chance over the best one's."""


@triton.jit(
    do_not_specialize=["num_heats"],
    do_not_specialize_on_alignment=["sources", "temperatures"],
)
def _survey_kernel(
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
        _row_of(logits, edited, sources, row, logits_stride, edited_stride) + columns,
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


@triton.jit
def _row_of(logits, edited, sources, row, logits_stride, edited_stride):
    """Where the scores of a row begin."""
    source = tl.load(sources + row).to(tl.int64)
    return tl.where(source < 0, logits + row * logits_stride, edited + source * edited_stride)


@triton.jit
def _weigh(row_scores, columns, size, best, temperature, min_p):
    """Each token's chance over the best one's: 0 to 1, 0 below min_p."""
    scores = tl.load(row_scores + columns, columns < size, float("-inf"))
    weights = tl.exp((scores - best) / temperature)
    return tl.where(weights < min_p, 0.0, weights)


@triton.jit
def _race(chances, names, key):
    """How far each comes: its chance over an exponential number that key and its name make.

    In float32 throughout, to about 4e-7 of itself.
    """
    bits = key + names.to(tl.int64) * _GOLDEN
    bits = (bits ^ ((bits >> 30) & 0x3FFFFFFFF)) * _MIX_1
    bits = (bits ^ ((bits >> 27) & 0x1FFFFFFFFF)) * _MIX_2
    bits = bits ^ ((bits >> 31) & 0x1FFFFFFFF)
    number = (bits >> 11) & 0x1FFFFFFFFFFFFF
    # Near 1, where the race is decided, a logarithm is taken by what is missing to 1: exactly as
    # 2 * atanh(missing / (2 - missing)), whose series ends soon.
    missing = ((0x1FFFFFFFFFFFFF - number).to(tl.float32) + 0.5) * 1.1102230246251565e-16
    part = missing / (2.0 - missing)
    square = part * part
    series = 1.0 / 13 + square * (1.0 / 15 + square * (1.0 / 17))
    series = 1.0 / 7 + square * (1.0 / 9 + square * (1.0 / 11 + square * series))
    series = 1.0 + square * (1.0 / 3 + square * (1.0 / 5 + square * series))
    uniform = (number.to(tl.float32) + 0.5) * 1.1102230246251565e-16
    far = -tl.log(tl.minimum(uniform, 0.5))
    return chances / tl.where(missing < 0.5, 2.0 * part * series, far)


@triton.jit
def _first_best(values, names):
    """The lowest name among those of the largest value."""
    return tl.min(tl.where(values == tl.max(values), names, 0x7FFFFFFF))


@triton.jit
def _tally(count, mass, weights, is_in):
    """Count tokens and add up what they weigh, each thread its own."""
    return count + is_in.to(tl.int32), mass + tl.where(is_in, weights, 0.0)


@triton.jit
def _narrow(
    row_scores,
    size,
    best,
    temperature,
    min_p,
    low,  # int32: the bits of a weight, whom with all above fulfil what is wanted
    high,  # int32: the bits of a weight, whom with all above do not
    above_count,  # float32: tokens of at least high
    above_mass,  # float32: what they weigh
    wanted,  # float32: tokens, or a weight
    BY_MASS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Bring low and high together until all tokens between them weigh the same.

    Out: low, high, above_count, above_mass as of the new high; how many tokens are between, and
    what one of them weighs.
    """
    between = tl.full([], 0.0, tl.float32)
    each = tl.full([], 0.0, tl.float32)
    is_open = high > low
    while is_open:
        step = tl.maximum((high - low) // 4, 1)
        first, second, third = low + step, low + 2 * step, low + 3 * step
        first, second = tl.minimum(first, high), tl.minimum(second, high)
        third = tl.minimum(third, high)
        none, nothing = tl.full([TILE], 0, tl.int32), tl.full([TILE], 0.0, tl.float32)
        count_1, count_2, count_3, count_all = none, none, none, none
        mass_1, mass_2, mass_3 = nothing, nothing, nothing
        least = tl.full([TILE], 0x7FFFFFFF, tl.int32)
        most = tl.full([TILE], -1, tl.int32)
        for start in range(0, size, TILE):
            columns = start + tl.arange(0, TILE)
            weights = _weigh(row_scores, columns, size, best, temperature, min_p)
            bits = tl.where(columns < size, weights.to(tl.int32, bitcast=True), -1)
            is_between = (bits >= low) & (bits < high)
            least = tl.where(is_between, tl.minimum(least, bits), least)
            most = tl.where(is_between, tl.maximum(most, bits), most)
            count_all += is_between.to(tl.int32)
            count_1, mass_1 = _tally(count_1, mass_1, weights, is_between & (bits >= first))
            count_2, mass_2 = _tally(count_2, mass_2, weights, is_between & (bits >= second))
            count_3, mass_3 = _tally(count_3, mass_3, weights, is_between & (bits >= third))
        lowest, highest = tl.min(least), tl.max(most)
        if lowest >= highest:
            between = tl.sum(count_all).to(tl.float32)
            each = tl.maximum(highest, 0).to(tl.float32, bitcast=True)
            is_open = lowest < highest
        else:
            counts_1 = above_count + tl.sum(count_1).to(tl.float32)
            counts_2 = above_count + tl.sum(count_2).to(tl.float32)
            counts_3 = above_count + tl.sum(count_3).to(tl.float32)
            masses_1 = above_mass + tl.sum(mass_1)
            masses_2 = above_mass + tl.sum(mass_2)
            masses_3 = above_mass + tl.sum(mass_3)
            if BY_MASS:
                has_1, has_2, has_3 = masses_1 >= wanted, masses_2 >= wanted, masses_3 >= wanted
            else:
                has_1, has_2, has_3 = counts_1 >= wanted, counts_2 >= wanted, counts_3 >= wanted
            low = tl.where(has_3, third, tl.where(has_2, second, tl.where(has_1, first, low)))
            above_count = tl.where(
                has_3,
                above_count,
                tl.where(has_2, counts_3, tl.where(has_1, counts_2, counts_1)),
            )
            above_mass = tl.where(
                has_3,
                above_mass,
                tl.where(has_2, masses_3, tl.where(has_1, masses_2, masses_1)),
            )
            high = tl.where(has_3, high, tl.where(has_2, third, tl.where(has_1, second, first)))
            # Within what was seen, the next pass may tell more apart.
            low, high = tl.maximum(low, lowest), tl.minimum(high, highest + 1)
    return low, high, above_count, above_mass, between, each


@triton.jit
def _draw_kept(
    row_scores,
    places,  # [num_places] float32, scratch
    chances,  # [num_places] float32, scratch
    size,
    num_places,
    best,
    temperature,
    min_p,
    key,
    low,
    high,
    above_count,  # float32: tokens of at least high, which are kept
    num_equal,  # float32: tokens between low and high that are kept, the lowest ids first
    TILE: tl.constexpr,
):
    """The token that wins among those of at least high and some between.

    Few are first brought together: to draw a number for each token of a vocabulary takes long.
    """
    leader = tl.full([TILE], -1.0, tl.float32)
    names = tl.full([TILE], 0, tl.int32)
    num_kept = above_count + num_equal
    num_seen = tl.full([], 0.0, tl.float32)
    num_passed = tl.full([], 0.0, tl.float32)
    is_few = num_kept <= num_places
    for start in range(0, size, TILE):
        columns = start + tl.arange(0, TILE)
        weights = _weigh(row_scores, columns, size, best, temperature, min_p)
        bits = tl.where(columns < size, weights.to(tl.int32, bitcast=True), -1)
        is_between = (bits >= low) & (bits < high)
        rank = num_seen + tl.cumsum(is_between.to(tl.float32), 0)
        num_seen += tl.sum(is_between.to(tl.float32))
        is_kept = (bits >= high) | (is_between & (rank <= num_equal))
        if is_few:
            place = num_passed.to(tl.int32) + tl.cumsum(is_kept.to(tl.int32), 0) - 1
            tl.store(places + place, columns.to(tl.float32), is_kept)
            tl.store(chances + place, weights, is_kept)
            num_passed += tl.sum(is_kept.to(tl.float32))
        else:
            came = tl.where(is_kept, _race(weights, columns, key), -1.0)
            names = tl.where(came > leader, columns, names)
            leader = tl.maximum(leader, came)
    if is_few:
        tl.debug_barrier()
        for start in range(0, num_kept.to(tl.int32), TILE):
            place = start + tl.arange(0, TILE)
            is_in = place < num_kept.to(tl.int32)
            columns = tl.load(places + place, is_in, 0.0).to(tl.int32)
            weights = tl.load(chances + place, is_in, 0.0)
            came = tl.where(is_in, _race(weights, columns, key), -1.0)
            names = tl.where(came > leader, columns, names)
            leader = tl.maximum(leader, came)
    return _first_best(leader, names)


@triton.jit
def _draw_filtered(
    row_scores,
    places,
    chances,
    size,
    num_places,
    best,
    temperature,
    top_k,
    top_p,
    min_p,
    key,
    TILE: tl.constexpr,
):
    """Race among what top_k keeps, and of that top_p."""
    zero = tl.full([], 0.0, tl.float32)
    low = tl.full([], 0, tl.int32)
    high = tl.full([], 0, tl.int32)
    over = tl.full([], _ONE + 1, tl.int32)
    above_count, above_mass, num_equal, each = zero, zero, zero, zero
    if (top_k > 0) & (top_k < size):
        wanted = top_k.to(tl.float32)
        low, high, above_count, above_mass, num_equal, each = _narrow(
            row_scores, size, best, temperature, min_p, low, over, zero, zero, wanted, False, TILE
        )
        num_equal = wanted - above_count
    else:
        # As if the threshold were known, and all were above.
        total = tl.full([TILE], 0.0, tl.float32)
        for start in range(0, size, TILE):
            columns = start + tl.arange(0, TILE)
            total += _weigh(row_scores, columns, size, best, temperature, min_p)
        above_count += size.to(tl.float32)
        above_mass += tl.sum(total)
    if top_p < 1.0:
        wanted = (above_mass + num_equal * each) * top_p
        if above_mass >= wanted:
            low, high, above_count, above_mass, num_equal, each = _narrow(
                row_scores,
                size,
                best,
                temperature,
                min_p,
                high,
                over,
                zero,
                zero,
                wanted,
                True,
                TILE,
            )
        if each > 0:
            num_equal = tl.minimum(num_equal, tl.ceil((wanted - above_mass) / each))
    return _draw_kept(
        row_scores,
        places,
        chances,
        size,
        num_places,
        best,
        temperature,
        min_p,
        key,
        low,
        high,
        above_count,
        num_equal,
        TILE,
    )


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
            weights = _weigh(row_scores, columns, size, best, temperature, min_p)
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
        came = tl.where(is_in & (sums > 0), _race(sums, size + heats, key), -1.0)
        names = tl.where(came > leader, heats, names)
        leader = tl.maximum(leader, came)
    columns = _first_best(leader, names) * HEAT + tl.arange(0, HEAT)
    weights = _weigh(row_scores, columns, size, best, temperature, min_p)
    came = tl.where(columns < size, _race(weights, columns, key), -1.0)
    return _first_best(came, columns)


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
    row_scores = _row_of(logits, edited, sources, row, logits_stride, edited_stride)
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
        columns = _first_best(leader, names) * HEAT + tl.arange(0, HEAT)
        scores = tl.load(row_scores + columns, columns < size, float("-inf"))
        token_id = _first_best(scores, columns)
        temperature = tl.load(temperatures + row)
        if temperature > 0:
            top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
            min_p, key = tl.load(min_ps + row), tl.load(keys + row)
            if (top_k > 0) | (top_p < 1.0):
                token_id = _draw_filtered(
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
    _survey_kernel[(num_rows, num_programs)](
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
        _survey_kernel,
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
