"""The engine: requests in, tokens out, one step at a time.

The server's engine thread calls it, and nobody else: add and abort happen between two steps. It
knows no text and no HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from forebay_runtime.request import Load, Output, Request


@dataclass(frozen=True)
class VramTerm:
    """One term of the memory arithmetic, as planned and as measured."""

    name: str  # weights, kv_cache, activation, overhead
    planned_bytes: int
    measured_bytes: int


class EngineLike(Protocol):
    """What the server needs of an engine; a fake in tests has the same."""

    max_model_len: int
    vocab_size: int
    eos_token_ids: frozenset[int]

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
        """Run the model once over whatever the scheduler picked."""

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
