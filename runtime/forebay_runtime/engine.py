"""The engine: requests in, tokens out, one step at a time.

The server's engine thread calls it, and nobody else: add and abort happen between two steps. It
knows no text and no HTTP, and imports no torch itself: what needs it is handed in.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from forebay_runtime.request import Load, Output, Request
from forebay_runtime.scheduling.batch import Batch
from forebay_runtime.scheduling.scheduler import Scheduler
from forebay_runtime.step_result import Drawn, Known, Sampled, StepResult


@dataclass(frozen=True)
class VramTerm:
    """One term of the memory arithmetic, as planned and as measured."""

    name: str
    """weights, kv_cache, activation or overhead."""
    planned_bytes: int
    measured_bytes: int


@dataclass(frozen=True)
class Warmth:
    """What warm-up found out: the seconds of the slowest step that can come, and the memory.

    most_step_seconds: how long serving's steps may be; None for as long as the limits make them.
    device: cuda or cpu, where all of it ran.
    """

    slowest_step_seconds: float = 0.0
    vram_terms: tuple[VramTerm, ...] = ()
    most_step_seconds: float | None = None
    device: str = ""


class EngineLike(Protocol):
    """What the server needs of an engine; a fake in tests has the same."""

    max_model_len: int
    vocab_size: int
    embedding_size: int
    eos_token_ids: frozenset[int]

    @property
    def slowest_warm_step_seconds(self) -> float:
        """How long the largest step that can come took, or would have, in warm-up."""

    def warm_up(self) -> None:
        """Run every shape that serving can meet; num_cold counts from here."""

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises: ValueError if it can never run: no prompt, too long, token ids out of range, or an
        id in use.
        """

    def abort(self, request_id: str) -> None:
        """End a request now; the next step reports it with finish_reason "abort".

        An id that is not known (it ended meanwhile) is no error.
        """

    def step(self) -> list[Output]:
        """Run the model once over whatever the scheduler picked.

        What it gave may come out a step later; something moves or ends with each call.
        """

    @property
    def has_work(self) -> bool:
        """Is there anything that a step would move or report?"""

    def load_now(self) -> Load:
        """How busy the engine is."""

    @property
    def num_cold(self) -> int:
        """Shapes, buffers and first touches since warm-up that warm-up did not cover."""

    @property
    def vram_terms(self) -> tuple[VramTerm, ...]:
        """Planned beside measured memory, once warm."""

    @property
    def device(self) -> str:
        """What it computes on, cuda or cpu, once warm."""


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
        """One token for each of batch.sampled, and what else its requests asked for."""


@dataclass(frozen=True)
class Flight:
    """A step that was launched: its work, what will come of it, and what the launch took."""

    batch: Batch
    drawn: Drawn
    launch_seconds: float


_NOTHING_LAUNCHED = Flight(Batch(()), Known(Sampled(), None), 0.0)


@dataclass(frozen=True)
class Widths:
    """How many tokens the model knows, and how many numbers an embedding has."""

    vocab_size: int
    embedding_size: int


class Engine:
    """A scheduler, a runner and a sampler, in turn; or each step launched before the last ends."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        sampler: Sampler,
        run_every_shape: Callable[[], Warmth],
        widths: Widths,
        *,
        is_async: bool = False,
    ) -> None:
        """Put the parts together, cold; run_every_shape warms runner and sampler.

        is_async: launch each step before the one before it is settled.
        """
        self.scheduler = scheduler
        self.runner = runner
        self.sampler = sampler
        self.vocab_size = widths.vocab_size
        self.embedding_size = widths.embedding_size
        self.max_model_len = scheduler.limits.max_model_len
        self.eos_token_ids = scheduler.eos_token_ids
        self._run_every_shape = run_every_shape
        self._warmth = Warmth()
        self._most_flying = 1 if is_async else 0
        self._flights: deque[Flight] = deque()

    def warm_up(self) -> None:
        """Run every shape that serving can meet; num_cold counts from here.

        Raises: StartError if there is too little memory for it.
        """
        self._warmth = warmth = self._run_every_shape()
        if warmth.most_step_seconds is not None:
            self.scheduler.pace.keep_under(warmth.most_step_seconds, warmth.slowest_step_seconds)

    @property
    def slowest_warm_step_seconds(self) -> float:
        """How long the largest step that can come took, or would have, in warm-up."""
        return self._warmth.slowest_step_seconds

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises: ValueError if it can never run.
        """
        num_tokens, most = len(request.prompt_token_ids), self.max_model_len - request.samples
        if not 0 < num_tokens <= most:
            raise ValueError(
                f"the prompt has {num_tokens} tokens; possible are 1 to {most} with "
                f"--max-model-len {self.max_model_len}"
            )
        lowest, highest = min(request.prompt_token_ids), max(request.prompt_token_ids)
        if not 0 <= lowest <= highest < self.vocab_size:
            raise ValueError(f"the prompt has token ids outside 0 to {self.vocab_size - 1}")
        if self.scheduler.knows(request.request_id):
            raise ValueError(f"request id {request.request_id} is in use")
        self.scheduler.add(request)

    def abort(self, request_id: str) -> None:
        """End a request now; the next step reports it. An unknown id is no error."""
        self.scheduler.abort(request_id)

    def step(self) -> list[Output]:
        """Launch what the scheduler picked, and settle the step before it; or it, if not async."""
        batch = self.scheduler.schedule()
        if batch.chunks:
            self._flights.append(self._launch(batch))
        may_stay = self._most_flying if batch.chunks else 0
        landing = self._flights.popleft() if len(self._flights) > may_stay else _NOTHING_LAUNCHED
        return self._settle(landing)

    def _launch(self, batch: Batch) -> Flight:
        """Hand a batch to the device; on a CPU that computes it."""
        start = time.perf_counter()
        drawn = self.sampler.sample(self.runner.run(batch), batch)
        if self._most_flying:
            self.runner.carry(drawn.token_ids)
        return Flight(batch, drawn, time.perf_counter() - start)

    def _settle(self, landing: Flight) -> list[Output]:
        """Wait for a step and record what it gave."""
        start = time.perf_counter()
        sampled = landing.drawn.wait()
        # Without a step in flight this is what it took; with one, the launch stands for the part
        # of it during which the host was busy with other things.
        seconds = landing.launch_seconds + time.perf_counter() - start
        return self.scheduler.settle(landing.batch, sampled, seconds)

    @property
    def has_work(self) -> bool:
        """Is there anything that a step would move or report?"""
        return self.scheduler.has_work or bool(self._flights)

    def load_now(self) -> Load:
        """How busy the engine is."""
        return self.scheduler.load_now()

    @property
    def num_cold(self) -> int:
        """Shapes, buffers and first touches since warm-up that warm-up did not cover."""
        return self.runner.num_cold

    @property
    def vram_terms(self) -> tuple[VramTerm, ...]:
        """Planned beside measured memory, once warm."""
        return self._warmth.vram_terms

    @property
    def device(self) -> str:
        """What it computes on, cuda or cpu, once warm."""
        return self._warmth.device
