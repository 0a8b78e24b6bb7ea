"""The calibration's tokens on their way through a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor

from forebay_runtime.quantizing.layer_steps import LayerSteps


@dataclass
class Stream:
    """A layer's computation, and what goes through it: states of [B, L, h], written over."""

    steps: LayerSteps
    states: list[Tensor]

    def taps(self, look: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
        """What is seen at a place of the layer, batch by batch."""
        return map(look, self.states)

    def move(self, step: Callable[[Tensor, Tensor], Tensor], taps: Iterable[Tensor]) -> None:
        """Take a step that adds to the states."""
        for x, tap in zip(self.states, taps, strict=True):
            x.copy_(step(x, tap))
