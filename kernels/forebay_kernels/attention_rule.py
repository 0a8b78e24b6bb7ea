"""How a layer attends: what every form of attention, and the reference, is told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AttentionRule:
    """How a layer attends.

    window: keys that a query sees, its own included; None: all before it.
    scale: of scores; None: D ** -0.5. softcap: scores become cap * tanh(score / cap).
    """

    window: int | None = None
    scale: float | None = None
    softcap: float | None = None


FULL_ATTENTION = AttentionRule()
