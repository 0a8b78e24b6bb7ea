"""Chance, as in the portable form: how far each of some tokens or heats comes, and who is first."""

from __future__ import annotations

import triton
import triton.language as tl

_GOLDEN = tl.constexpr(-0x61C8864680B583EB)
_MIX_1 = tl.constexpr(-0x40A7B892E31B1A47)
_MIX_2 = tl.constexpr(-0x6B2FB644ECCEEE15)


@triton.jit
def race(chances, names, key):
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
def first_best(values, names):
    """The lowest name among those of the largest value."""
    return tl.min(tl.where(values == tl.max(values), names, 0x7FFFFFFF))
