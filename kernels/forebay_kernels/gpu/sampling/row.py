"""Where a row's scores are, and what each weighs."""

from __future__ import annotations

import triton
import triton.language as tl

HEAT = tl.constexpr(256)
"""Tokens in a row that the survey takes together."""


@triton.jit
def row_of(logits, edited, sources, row, logits_stride, edited_stride):
    """Where the scores of a row begin."""
    source = tl.load(sources + row).to(tl.int64)
    return tl.where(source < 0, logits + row * logits_stride, edited + source * edited_stride)


@triton.jit
def weigh(row_scores, columns, size, best, temperature, min_p):
    """Each token's chance over the best one's: 0 to 1, 0 below min_p."""
    scores = tl.load(row_scores + columns, columns < size, float("-inf"))
    weights = tl.exp((scores - best) / temperature)
    return tl.where(weights < min_p, 0.0, weights)
