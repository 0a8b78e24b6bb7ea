"""What rank 0 tells the others, each once and small, and what they answer. Imports no torch."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from forebay_runtime.config import EngineConfig
from forebay_runtime.models.topology import Topology
from forebay_runtime.runner.step_inputs import StepInputs
from forebay_runtime.scheduling.batch import Limits


@dataclass(frozen=True)
class Prepare:
    """Begin to use a device: cpu, or cuda, of which each rank takes its own number. Answered."""

    device: str


@dataclass(frozen=True)
class Load:
    """Meet the other ranks and read the weights of this rank's part; what was there before goes.

    meeting: a number that these ranks meet by, each time another. Answered.
    """

    config: EngineConfig
    topology: Topology
    limits: Limits
    meeting: int


@dataclass(frozen=True)
class Build:
    """Make a cache of so many blocks, and a runner; one made before is dropped. Answered."""

    num_blocks: int
    limits: Limits


@dataclass(frozen=True)
class Step:
    """Compute a step. Not answered: the ranks meet in the model's own exchanges."""

    inputs: StepInputs
    num_layers: int | None


@dataclass(frozen=True)
class Score:
    """Compute the logits of so many states that rank 0 shares."""

    num_rows: int


@dataclass(frozen=True)
class Carry:
    """Keep so many samples that rank 0 shares, for the next step."""

    num_rows: int


@dataclass(frozen=True)
class Capture:
    """Capture graphs of decode steps."""


@dataclass(frozen=True)
class BeginMeasuring:
    """Note what memory is in use, and forget the peak. Answered."""


@dataclass(frozen=True)
class Measure:
    """Tell the memory terms since BeginMeasuring. Answered."""


@dataclass(frozen=True)
class CountRoom:
    """Tell how many blocks this rank's GPU has left beside the rest. Answered."""


Message = (
    Prepare | Load | Build | Step | Score | Carry | Capture | BeginMeasuring | Measure | CountRoom
)


@dataclass(frozen=True)
class Answer:
    """value: None where there is nothing to tell. failure: why it could not be done.

    failed_at: when that was found, by the clock that all processes of a host share.
    """

    value: Any = None
    failure: str | None = None
    failed_at: float = field(default_factory=time.monotonic)
