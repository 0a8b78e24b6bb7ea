"""Tokens that the host knows as soon as they are picked."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Picked(NamedTuple):
    """R tokens, and what came of each row: as forebay_kernels.outcome has it."""

    token_ids: list[int]
    outcomes: list[int]


def to_drawn_tensor(drawn: Tensor | Picked) -> Tensor:
    """[2, R] int64: tokens, then outcomes."""
    return torch.tensor(drawn, dtype=torch.int64) if isinstance(drawn, Picked) else drawn
