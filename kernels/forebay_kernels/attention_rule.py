"""How a layer attends: what every form of attention, and the reference, is told."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class AttentionRule:
    """How a layer attends.

    window: keys that a query sees, its own included; None: all before it.
    scale: of scores; None: D ** -0.5. softcap: scores become cap * tanh(score / cap).
    sinks: [H] float32, a learned score of each head, neither scaled nor capped, that takes its part
    of the weights and has no value. Source: Xiao et al. 2023 (StreamingLLM) §3.
    """

    window: int | None = None
    scale: float | None = None
    softcap: float | None = None
    sinks: Tensor | None = field(default=None, compare=False)


FULL_ATTENTION = AttentionRule()
