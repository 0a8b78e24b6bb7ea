"""Steps on their way: launched on the device, and landed when somebody must know what they gave.

The engine launches and lands; with async scheduling one step stays in flight meanwhile, so that the
device has the next before it ends the last. Imports no torch.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from forebay_runtime.scheduling.batch import Batch
from forebay_runtime.step_result import Drawn, Sampled, StepResult


class Runner(Protocol):
    """Computes a batch; what is in its result is the sampler's business alone."""

    @property
    def num_cold(self) -> int:
        """What ran for the first time after warm-up."""

    def run(self, batch: Batch) -> StepResult:
        """Compute the batch's tokens; logits in the order of batch.sampled."""

    def carry(self, token_ids: Any) -> None:
        """Keep the batch's samples on the device, for the pending tokens of the next one."""


class Sampler(Protocol):
    """Picks tokens, and reads scores and embeddings, from what the runner gave."""

    def sample(self, result: StepResult, batch: Batch) -> Drawn:
        """One token for each of batch.sampled, and what else its requests asked for.

        What it reads of result may be overwritten by the next run: copies of it are under way when
        this returns.
        """


@dataclass(frozen=True)
class Landed:
    """A step that has ended: its work, what it gave, and what it took by itself."""

    batch: Batch
    sampled: Sampled
    seconds: float


@dataclass(frozen=True)
class _Flight:
    batch: Batch
    drawn: Drawn
    launch_seconds: float
    launched_at: float


class Flights:
    """The steps in flight, the first to land first: none or one between two calls of the engine."""

    def __init__(
        self,
        runner: Runner,
        sampler: Sampler,
        is_async: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """is_async: one stays in flight when another was launched after it."""
        self.runner = runner
        self.sampler = sampler
        self.gap_seconds = 0.0
        """How long, at most, the device had nothing to do while a step was being launched."""
        self._is_async = is_async
        self._clock = clock
        self._flights: deque[_Flight] = deque()
        self._landed_at = 0.0

    def __len__(self) -> int:
        return len(self._flights)

    def launch(self, batch: Batch) -> None:
        """Hand a batch to the device; a CPU computes it meanwhile."""
        start = self._clock()
        drawn = self.sampler.sample(self.runner.run(batch), batch)
        if self._is_async:
            self.runner.carry(drawn.token_ids)
        now = self._clock()
        if self._flights and self._flights[-1].drawn.is_over():
            # It ran when it was launched, or when the host was done waiting for the one before.
            self.gap_seconds += now - max(self._flights[-1].launched_at, self._landed_at)
        self._flights.append(_Flight(batch, drawn, now - start, now))

    def land(self, *, may_fly_on: bool) -> Landed:
        """Wait for the first step; may_fly_on: not for the last one, if steps may be in flight."""
        if len(self._flights) <= (self._is_async and may_fly_on):
            return Landed(Batch(()), Sampled(), 0.0)
        flight, start = self._flights.popleft(), self._clock()
        sampled = flight.drawn.wait()
        self._landed_at = self._clock()
        # Alone it took just this; behind another, its launch stands for the part of it during
        # which the host was busy with other things.
        return Landed(flight.batch, sampled, flight.launch_seconds + self._landed_at - start)
