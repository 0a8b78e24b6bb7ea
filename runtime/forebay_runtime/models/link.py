"""What a model says to the other ranks that hold it, while it runs.

A model on one device has nobody to talk to and is handed ALONE; `parallel` has the other form.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from forebay_runtime.models.shard import WHOLE, Shard


class Link(Protocol):
    """A rank's connection to those that hold other parts of the same layers, or other layers.

    All ranks of a group call the same in the same order, with the same shapes.
    """

    @property
    def shard(self) -> Shard:
        """Which part of each layer this rank holds."""

    def add_up(self, x: Tensor) -> Tensor:
        """The sum of all parts' x, the same bits on each; x may be overwritten."""

    def join(self, x: Tensor) -> Tensor:
        """All parts' columns side by side. Shapes: x [T, N]; out [T, size * N]."""

    def send(self, x: Tensor) -> None:
        """Hand x to the next stage."""

    def receive(self, x: Tensor) -> Tensor:
        """Fill x with what the stage before sent, and return it."""

    def give(self, x: Tensor) -> None:
        """Hand x to rank 0, in the last of several stages."""

    def take(self, x: Tensor) -> Tensor:
        """Fill x with what the last stage gave, where this is rank 0, and return it."""


class Alone:
    """The link of a model that one rank holds whole."""

    shard = WHOLE

    def add_up(self, x: Tensor) -> Tensor:
        """There is one summand."""
        return x

    def join(self, x: Tensor) -> Tensor:
        """There is one part."""
        return x

    def send(self, x: Tensor) -> None:
        """There is no other stage."""

    def receive(self, x: Tensor) -> Tensor:
        """There is no other stage."""
        return x

    def give(self, x: Tensor) -> None:
        """There is no other stage."""

    def take(self, x: Tensor) -> Tensor:
        """There is no other stage."""
        return x


ALONE = Alone()
