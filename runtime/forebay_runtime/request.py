"""A request as the engine sees it: tokens in, tokens out, and how far its computation has come.

Made by the server, scheduled by the scheduler, read by runner and sampler. Text, stop strings and
HTTP never reach this far. Imports no torch.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "abort", "error"]

_LEAST_TEMPERATURE = 1e-5
"""Below it all chances but the best token's are zero in float32."""


@dataclass(frozen=True)
class SamplingParams:
    """How a request's tokens are chosen and when it ends.

    temperature 0 is greedy. top_k 0 and top_p 1 leave every token in. stop_token_ids end the
    request besides the model's own end-of-sequence tokens, which ignore_eos switches off.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        """Refuse values that mean nothing.

        Raises: ValueError naming the field and its range.
        """
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens {self.max_tokens} is below 1")
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature {self.temperature} is not a number of at least 0")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p {self.top_p} is outside (0, 1]")
        if self.top_k < 0:
            raise ValueError(f"top_k {self.top_k} is below 0")

    @property
    def is_greedy(self) -> bool:
        """Is the best token always taken, so that chance plays no part?"""
        return self.temperature < _LEAST_TEMPERATURE


@dataclass(eq=False)
class Request:
    """One sequence and its state.

    0 <= num_computed_tokens <= num_tokens holds always; blocks hold the keys and values of the
    tokens [0, num_computed_tokens). The last token sampled is never computed yet.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    output_token_ids: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    block_ids: list[int] = field(default_factory=list)
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Seed the request's own generator; without a seed, by chance."""
        self._random = random.Random(self.sampling.seed)

    def draw(self) -> float:
        """A number in [0, 1), one for each sampled token; a preempted request does not redraw."""
        return self._random.random()

    @property
    def num_tokens(self) -> int:
        """Tokens known so far: the prompt's and those sampled."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    def token_ids(self, start: int, end: int) -> list[int]:
        """The known tokens [start, end), counted from the prompt's first."""
        num_prompt = len(self.prompt_token_ids)
        if start >= num_prompt:
            return self.output_token_ids[start - num_prompt : end - num_prompt]
        return self.prompt_token_ids[start:end] + self.output_token_ids[: max(0, end - num_prompt)]


@dataclass(frozen=True)
class Output:
    """What one step gave one request.

    token_ids are new in this step, a stop token included. Every request gets exactly one output
    with a finish_reason, and nothing after it; error is set where the reason is "error".
    """

    request_id: str
    token_ids: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    error: str | None = None


@dataclass(frozen=True)
class Load:
    """How busy the engine is between two steps."""

    num_running: int
    num_waiting: int
    kv_cache_usage: float
    free_kv_tokens: int
