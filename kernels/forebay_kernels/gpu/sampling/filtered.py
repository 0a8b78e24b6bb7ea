"""A race among what top_k and top_p keep: first a threshold is found, by passes over the row."""

from __future__ import annotations

import triton
import triton.language as tl

from forebay_kernels.gpu.sampling.race import first_best, race
from forebay_kernels.gpu.sampling.row import weigh

_ONE = tl.constexpr(0x3F800000)
"""The bits of 1.0, the largest weight: a token's chance over the best one's."""


@triton.jit
def _tally(count, mass, weights, is_in):
    """Count tokens and add up what they weigh, each thread its own."""
    return count + is_in.to(tl.int32), mass + tl.where(is_in, weights, 0.0)


@triton.jit
def narrow(
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
            weights = weigh(row_scores, columns, size, best, temperature, min_p)
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
        weights = weigh(row_scores, columns, size, best, temperature, min_p)
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
            came = tl.where(is_kept, race(weights, columns, key), -1.0)
            names = tl.where(came > leader, columns, names)
            leader = tl.maximum(leader, came)
    if is_few:
        tl.debug_barrier()
        for start in range(0, num_kept.to(tl.int32), TILE):
            place = start + tl.arange(0, TILE)
            is_in = place < num_kept.to(tl.int32)
            columns = tl.load(places + place, is_in, 0.0).to(tl.int32)
            weights = tl.load(chances + place, is_in, 0.0)
            came = tl.where(is_in, race(weights, columns, key), -1.0)
            names = tl.where(came > leader, columns, names)
            leader = tl.maximum(leader, came)
    return first_best(leader, names)


@triton.jit
def draw_filtered(
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
        low, high, above_count, above_mass, num_equal, each = narrow(
            row_scores, size, best, temperature, min_p, low, over, zero, zero, wanted, False, TILE
        )
        num_equal = wanted - above_count
    else:
        # As if the threshold were known, and all were above.
        total = tl.full([TILE], 0.0, tl.float32)
        for start in range(0, size, TILE):
            columns = start + tl.arange(0, TILE)
            total += weigh(row_scores, columns, size, best, temperature, min_p)
        above_count += size.to(tl.float32)
        above_mass += tl.sum(total)
    if top_p < 1.0:
        wanted = (above_mass + num_equal * each) * top_p
        if above_mass >= wanted:
            low, high, above_count, above_mass, num_equal, each = narrow(
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
