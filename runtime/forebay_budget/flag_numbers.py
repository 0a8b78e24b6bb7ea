"""Numbers that flags take, as types for argparse; of what is none, the bounds are told."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from decimal import Decimal, InvalidOperation


def number(
    kind: type[int] | type[float], least: float, most: float = math.inf
) -> Callable[[str], float]:
    """Reads a finite number of a kind, from least to most."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            word = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"{text!r} is not a {word}") from None
        # A whole number may be larger than any float, which math.isinf would make of it.
        if not least <= value <= most or value == math.inf:
            bounds = f"at least {least:g}" if math.isinf(most) else f"from {least:g} to {most:g}"
            raise argparse.ArgumentTypeError(f"{text} is out of range; it must be {bounds}")
        return value

    return parse


def share(text: str) -> Decimal:
    """Reads a number above 0 and at most 1."""
    try:
        value = Decimal(text)
        if value.is_finite() and 0 < value <= 1:
            return value
    except InvalidOperation:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no share above 0 and at most 1")
