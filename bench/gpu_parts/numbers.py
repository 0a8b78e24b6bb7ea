"""Every kernel against the reference, before anything is timed: the largest error of each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor

from gpu_parts.cache_checks import cache_checks
from gpu_parts.draw_checks import draw_checks
from gpu_parts.figure import Figure
from gpu_parts.maker import Maker
from gpu_parts.product_checks import product_checks
from gpu_parts.row_checks import row_checks
from gpu_parts.run import Run

_MOST_ERROR = {torch.bfloat16: 2e-2, torch.float32: 2e-3}
"""Of the largest number of a result: bfloat16 keeps eight bits of each, and sums of many differ."""


def measure(run: Run) -> Iterator[Figure]:
    """Each check's error; one that raises, whatever it is, is an error without end."""
    checks = (row_checks(), cache_checks(is_tiny=run.is_tiny), product_checks(), draw_checks())
    for name, check in chain(*checks):
        try:
            error = _error(*check(Maker(run)))
        except Exception as problem:
            print(f"note {name}: {type(problem).__name__}: {problem}", flush=True)
            error = float("inf")
        yield Figure(f"error of {name}", error, "of largest", most=_MOST_ERROR[run.dtype])


def _error(got: Tensor, expected: Tensor) -> float:
    expected = expected.float()
    difference = (got.cpu().float() - expected).abs().max()
    error = float(difference / expected.abs().max().clamp(min=1e-6))
    return error if error == error else float("inf")
