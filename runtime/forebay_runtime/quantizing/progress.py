"""What is told while layers are rounded: a line each, with the time that is left."""

from __future__ import annotations

import sys
from typing import TextIO

from forebay_runtime.quantizing.conversion import LayerReport


class Progress:
    """Writes to stderr, so that stdout stays the command's result."""

    def __init__(self, num_layers: int, stream: TextIO | None = None) -> None:
        self._num_layers = num_layers
        self._stream = stream or sys.stderr
        self._seconds = 0.0  # of the layers; what comes before them comes once
        self.worst: tuple[float, str] = (0.0, "")
        """The largest error of a matrix's outputs, and its module."""

    def say(self, text: str) -> None:
        """A line of its own."""
        print(text, file=self._stream, flush=True)

    def note(self, layer: LayerReport) -> None:
        """A layer is done."""
        done = layer.number + 1
        self._seconds += layer.seconds
        left = self._seconds / done * (self._num_layers - done)
        line = f"layer {done}/{self._num_layers}: {layer.seconds:.1f} s"
        if done < self._num_layers:
            line += f", about {_clock(left)} left"
        if layer.errors:
            part, error = max(layer.errors.items(), key=lambda item: item[1])
            line += f"; largest output error {error:.1%} ({part})"
            self.worst = max(self.worst, (error, f"model.layers.{layer.number}.{part}"))
        self.say(line)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
