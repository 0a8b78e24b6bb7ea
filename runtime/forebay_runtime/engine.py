"""The engine: requests in, tokens out, one step at a time.

The server's engine thread calls it, and nobody else: add and abort happen between two steps. It
knows no text and no HTTP, and imports no torch itself: what needs it is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from forebay_runtime.flights import Flights, Runner, Sampler
from forebay_runtime.request import Load, Output, Request
from forebay_runtime.scheduling.scheduler import Scheduler


@dataclass(frozen=True)
class VramTerm:
    """One term of the memory arithmetic, as planned and as measured."""

    name: str
    """weights, kv_cache, activation or overhead; or of overhead a part: context, communication
    (and whatever libraries hold) or graphs."""
    planned_bytes: int
    measured_bytes: int


@dataclass(frozen=True)
class Warmth:
    """What warm-up found out: the seconds of the slowest step that can come, and the memory.

    most_step_seconds: how long serving's steps may be; None for as long as the limits make them.
    device: cuda or cpu, where all of it ran. kernels: what computes there.
    startup_seconds: the whole start by phase.
    overhead_parts: what overhead is made of, on a GPU.
    """

    slowest_step_seconds: float = 0.0
    vram_terms: tuple[VramTerm, ...] = ()
    most_step_seconds: float | None = None
    device: str = ""
    kernels: str = ""
    startup_seconds: Mapping[str, float] = field(default_factory=dict)
    overhead_parts: tuple[VramTerm, ...] = ()


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
    def host_gap_seconds(self) -> float:
        """How long, at most, the device waited for the host while a step was in flight."""

    @property
    def vram_terms(self) -> tuple[VramTerm, ...]:
        """Planned beside measured memory, once warm."""

    @property
    def overhead_parts(self) -> tuple[VramTerm, ...]:
        """What the overhead is made of, on a GPU, once warm."""

    @property
    def startup_seconds(self) -> Mapping[str, float]:
        """What the start took by phase, once warm."""

    @property
    def device(self) -> str:
        """What it computes on, cuda or cpu, once warm."""

    @property
    def kernels(self) -> str:
        """What computes steps, once warm: triton, torch, or a CPU's set of instructions."""


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
        self.vocab_size = widths.vocab_size
        self.embedding_size = widths.embedding_size
        self.max_model_len = scheduler.limits.max_model_len
        self.eos_token_ids = scheduler.eos_token_ids
        self._run_every_shape = run_every_shape
        self._warmth = Warmth()
        self._flights = Flights(runner, sampler, is_async)

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
            self._flights.launch(batch)
        landed = self._flights.land(may_fly_on=bool(batch.chunks))
        return self.scheduler.settle(landed.batch, landed.sampled, landed.seconds)

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
    def host_gap_seconds(self) -> float:
        """How long, at most, the device waited for the host while a step was in flight."""
        return self._flights.gap_seconds

    @property
    def vram_terms(self) -> tuple[VramTerm, ...]:
        """Planned beside measured memory, once warm."""
        return self._warmth.vram_terms

    @property
    def device(self) -> str:
        """What it computes on, cuda or cpu, once warm."""
        return self._warmth.device

    @property
    def kernels(self) -> str:
        """What computes steps, once warm: triton, torch, or a CPU's set of instructions."""
        return self._warmth.kernels

    @property
    def overhead_parts(self) -> tuple[VramTerm, ...]:
        """What the overhead is made of, on a GPU, once warm."""
        return self._warmth.overhead_parts

    @property
    def startup_seconds(self) -> Mapping[str, float]:
        """What the start took by phase, once warm."""
        return self._warmth.startup_seconds
