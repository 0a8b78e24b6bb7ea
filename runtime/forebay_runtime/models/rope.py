"""The frequencies of a rotary embedding, stretched as the model's files say.

In float32 and in transformers' order, so that both round alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from forebay_budget.rope import (
    LinearScaling,
    Llama3Scaling,
    LongScaling,
    Rope,
    StoredScaling,
    YarnScaling,
    usual_attention_factor,
)

ReadFactors = Callable[[str, int], Tensor]
"""Reads a tensor of factors from the checkpoint, by its name and length."""


def rope_frequencies(
    rope: Rope, num_positions: int, max_positions: int, read: ReadFactors
) -> tuple[Tensor, float]:
    """Radians a position [num_dims / 2] float32, and what is rotated is multiplied by.

    num_positions: that may occur, by which long contexts are told from short ones;
    max_positions: that the model was made for.
    """
    exponents = torch.arange(0, rope.num_dims, 2, dtype=torch.int64).float() / rope.num_dims
    match rope.scaling:
        case LinearScaling(factor):
            return 1.0 / rope.theta**exponents / factor, 1.0
        case Llama3Scaling():
            return _llama3(1.0 / rope.theta**exponents, rope.scaling), 1.0
        case YarnScaling():
            return _yarn(rope, rope.theta**exponents, rope.scaling)
        case LongScaling():
            is_long = num_positions > rope.scaling.original_positions
            factors = _long_factors(rope, rope.scaling, read, is_long=is_long)
            frequencies = 1.0 / (factors * rope.theta**exponents)
            return frequencies, _long_attention_factor(rope.scaling, max_positions)
        case StoredScaling():
            factors = read("rope_freqs.weight", rope.num_dims // 2)
            return 1.0 / rope.theta**exponents / factors, 1.0
        case None:
            return 1.0 / rope.theta**exponents, 1.0


def _llama3(frequencies: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Wavelengths over what was trained are stretched, far shorter ones kept, a ramp between."""
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    turns = scaling.original_positions * frequencies / (2 * math.pi)
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - share) * frequencies / scaling.factor + share * frequencies


def _yarn(rope: Rope, wavelengths: Tensor, scaling: YarnScaling) -> tuple[Tensor, float]:
    """Source: Peng et al. 2023 (YaRN) §3.2 and §3.4."""

    def dimension(num_turns: float) -> float:
        """Where a frequency makes so many turns over what was trained."""
        ratio = scaling.original_positions / (num_turns * 2 * math.pi)
        return rope.num_dims * math.log(ratio) / (2 * math.log(rope.theta))

    low, high = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
    if scaling.is_truncated:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.num_dims - 1)
    steps = torch.arange(rope.num_dims // 2, dtype=torch.float32)
    kept = 1 - ((steps - low) / (high - low if high != low else 0.001)).clamp(0, 1)
    frequencies = 1.0 / (scaling.factor * wavelengths) * (1 - kept) + 1.0 / wavelengths * kept
    factor = scaling.attention_factor
    if factor is None:
        factor = usual_attention_factor(scaling.factor)
    return frequencies, factor


def _long_factors(rope: Rope, scaling: LongScaling, read: ReadFactors, *, is_long: bool) -> Tensor:
    factors = scaling.long_factors if is_long else scaling.short_factors
    if factors is None:
        kind = "long" if is_long else "short"
        return read(f"rope_factors_{kind}.weight", rope.num_dims // 2)
    return torch.tensor(factors, dtype=torch.float32)


def _long_attention_factor(scaling: LongScaling, max_positions: int) -> float:
    """Source: Ding et al. 2024 (LongRoPE) §3.3."""
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    ratio = max_positions / scaling.original_positions
    if ratio <= 1:
        return 1.0
    return math.sqrt(1 + math.log(ratio) / math.log(scaling.original_positions))
