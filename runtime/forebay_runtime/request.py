"""A request as the engine sees it: tokens in, tokens out, and how far its computation has come.

Made by the server, scheduled by the scheduler, read by runner and sampler. Text, stop strings and
HTTP never reach this far. Imports no torch.
"""

from __future__ import annotations

import random
from array import array
from collections import deque
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal, NamedTuple, Protocol

from forebay_runtime.prefix import Prefix

FinishReason = Literal["stop", "length", "abort", "error"]

_LEAST_TEMPERATURE = 1e-5
"""Below it all chances but the best token's are zero in float32."""


@dataclass(frozen=True)
class SamplingParams:
    """How a request's tokens are chosen and when it ends.

    temperature 0 is greedy. top_k 0, top_p 1 and min_p 0 leave every token in. stop_token_ids end
    the request besides the model's own end-of-sequence tokens, which ignore_eos switches off; none
    of them can be drawn before min_tokens. bad_words are token sequences that may not occur.
    max_tokens 0 samples nothing: the prompt is computed, and scored where that was asked.
    num_logprobs, num_prompt_logprobs: None for none; 0 for the token's own alone; else so many of
    the best beside it.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: frozenset[int] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    num_logprobs: int | None = None
    num_prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that mean nothing.

        Raises: ValueError naming the field and its range.
        """
        if self.max_tokens < 0:
            raise ValueError(f"max_tokens {self.max_tokens} is below 0")
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


class Constraint(Protocol):
    """Which tokens may come next; one a request, told of each token that came.

    Neither method may raise: a constraint that breaks allows nothing and says why in error.
    """

    def allowed(self) -> bytes:
        """A bit for each token id, lowest first, in bytes; only end tokens once it is complete."""

    def accept(self, token_id: int) -> None:
        """Take a sampled token."""

    @property
    def is_complete(self) -> bool:
        """Can nothing follow but the end?"""

    @property
    def error(self) -> str | None:
        """Why no token can follow, in a sentence for the client."""


@dataclass(frozen=True)
class TokenLogprobs:
    """How likely a token was, and the best beside it, before temperature and filters."""

    token_id: int
    logprob: float
    rank: int
    """1 for the best."""
    top: tuple[tuple[int, float], ...] = ()
    """The best tokens in falling order: (token id, logprob)."""


Pooling = Literal["mean", "last"]


@dataclass(eq=False)
class Request:
    """One sequence and its state.

    Blocks hold the keys and values of the tokens [0, num_computed_tokens); a step in flight may
    compute num_flying_tokens after these, and sample one whose id is pending:
    0 <= num_computed_tokens + num_flying_tokens - num_flying_drafts
    <= num_tokens + num_pending_tokens holds always.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    priority: int = 0
    """Larger is less urgent."""
    cache_salt: str = ""
    """Prefixes are shared only between requests of the same salt."""
    constraint: Constraint | None = None
    pooling: Pooling | None = None
    """Set for an embedding: nothing is sampled, the last hidden states are pooled."""
    output_token_ids: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    is_running: bool = False
    """Does it take part in steps, and not wait?"""
    num_flying_tokens: int = 0
    """Tokens that steps in flight compute; 0 again if a preemption threw these away."""
    num_pending_tokens: int = 0
    """Tokens that steps in flight sample: they count, and the host does not know their ids yet."""
    pending_row: int | None = None
    """Where among the samples of the step in flight its pending token is."""
    block_ids: array[int] = field(default_factory=partial(array, "i"))
    """The block table; its first num_unheld_blocks fell out of the window and are not held."""
    num_unheld_blocks: int = 0
    prefixes: list[Prefix] = field(default_factory=list)
    """Its full blocks' contents, as far as they were looked up or published."""
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    """Of the prompt's first tokens, as far as they were scored."""
    arrival_index: int = 0
    num_times_passed: int = 0
    """Requests behind it that ran first because it found no room."""
    num_cached_tokens: int | None = None
    """What the prefix cache spared when it first ran."""
    scheduled_at: float | None = None
    has_output: bool = False
    num_flying_drafts: int = 0
    """Of the tokens that fly, those that are only proposed."""
    num_drafted_tokens: int = 0
    """Tokens of which a draft model has keys and values in the request's blocks."""
    _chances: deque[int] = field(default_factory=deque, init=False, repr=False)
    """Drawn for tokens that are not there yet; the first belongs to the _num_spent-th."""
    _num_spent: int = field(default=0, init=False, repr=False)

    @cached_property
    def _random(self) -> random.Random:
        """Its own generator, seeded by chance where it has no seed; greedy ones never need it."""
        return random.Random(self.sampling.seed)

    def draw(self, num_ahead: int = 0) -> int:
        """63 bits of chance for the token that is being sampled, or for one of those after it.

        A token's are the same however often and however early they are asked for: what is proposed
        and thrown away, or computed again after a preemption, changes no draw.
        """
        place = self.num_sampled_tokens
        while self._num_spent < place and self._chances:
            self._chances.popleft()
            self._num_spent += 1
        while self._num_spent + len(self._chances) <= place + num_ahead:
            self._chances.append(self._random.getrandbits(63))
        return self._chances[place + num_ahead - self._num_spent]

    @cached_property
    def samples(self) -> bool:
        """Does it want tokens, or only what its prompt gives?"""
        return self.pooling is None and self.sampling.max_tokens > 0

    @cached_property
    def num_wanted_tokens(self) -> int:
        """As many tokens as it has at most, the prompt's and those it asked for."""
        return len(self.prompt_token_ids) + self.sampling.max_tokens

    @cached_property
    def edits_scores(self) -> bool:
        """Do its wishes change scores before a token is picked?"""
        sampling = self.sampling
        return (
            self.constraint is not None
            or sampling.allowed_token_ids is not None
            or bool(sampling.bad_words or sampling.logit_bias or sampling.min_tokens)
            or self.is_penalised
        )

    @cached_property
    def is_penalised(self) -> bool:
        """Do tokens that came make themselves less likely?"""
        sampling = self.sampling
        return (
            sampling.repetition_penalty != 1
            or sampling.presence_penalty != 0
            or sampling.frequency_penalty != 0
        )

    @cached_property
    def needs_known_tokens(self) -> bool:
        """Do its next token's scores hang on tokens that the host must have seen?

        Penalties count them, constraints walk over them, bad words of several tokens end with them.
        """
        sampling = self.sampling
        return (
            self.constraint is not None
            or any(len(word) > 1 for word in sampling.bad_words)
            or self.is_penalised
        )

    @property
    def takes_prefix_hits(self) -> bool:
        """May its prompt come from the cache? Not while all of it is to be scored or pooled."""
        needs_scores = self.sampling.num_prompt_logprobs is not None and not self.has_output
        return self.pooling != "mean" and not needs_scores

    @property
    def num_held_blocks(self) -> int:
        """Blocks that are its to read."""
        return len(self.block_ids) - self.num_unheld_blocks

    @property
    def held_block_ids(self) -> array[int]:
        """The blocks that are its to read: all but those behind its window."""
        return self.block_ids[self.num_unheld_blocks :]

    @property
    def num_tokens(self) -> int:
        """Tokens known so far: the prompt's and those sampled."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def num_launched_tokens(self) -> int:
        """Tokens that are computed, or will be by the steps in flight."""
        return self.num_computed_tokens + self.num_flying_tokens

    @property
    def num_sampled_tokens(self) -> int:
        """Tokens of the answer before the one that is being sampled, which is pending itself."""
        return len(self.output_token_ids) + max(0, self.num_pending_tokens - 1)

    @property
    def num_coming_tokens(self) -> int:
        """Tokens known and pending."""
        return len(self.prompt_token_ids) + len(self.output_token_ids) + self.num_pending_tokens

    @property
    def num_missing_tokens(self) -> int:
        """Tokens, pending ones too, that neither are computed nor fly."""
        return self.num_coming_tokens - self.num_computed_tokens - self.num_flying_tokens

    def token_at(self, place: int) -> int:
        """A known token, counted from the prompt's first."""
        num_prompt = len(self.prompt_token_ids)
        if place < num_prompt:
            return self.prompt_token_ids[place]
        return self.output_token_ids[place - num_prompt]

    def token_ids(self, start: int, end: int) -> list[int]:
        """The known tokens [start, end), counted from the prompt's first."""
        num_prompt = len(self.prompt_token_ids)
        if start >= num_prompt:
            return self.output_token_ids[start - num_prompt : end - num_prompt]
        return self.prompt_token_ids[start:end] + self.output_token_ids[: max(0, end - num_prompt)]


class Output(NamedTuple):
    """What one step gave one request.

    token_ids are new in this step, a stop token included, and logprobs are theirs where asked.
    Every request gets exactly one output with a finish_reason, and nothing after it; error is set
    where the reason is "error", and stop_token_id where a token ended it.
    prompt_logprobs come once, with the first output after the prompt: one a prompt token, None for
    the first. num_cached_tokens: prompt tokens that the prefix cache spared, in the first output.
    """

    request_id: str
    token_ids: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    error: str | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    num_cached_tokens: int | None = None
    embedding: tuple[float, ...] | None = None
    stop_token_id: int | None = None
    scheduled_at: float | None = None
    """time.monotonic() of the first step that computed any of it; in the first output."""


@dataclass(frozen=True)
class Speculated:
    """What was proposed since the start, and how much of it was kept.

    num_drafts: times that something was proposed for a request. num_kept_at: of these, how often
    the first, the second … token was kept.
    """

    num_drafts: int = 0
    num_proposed_tokens: int = 0
    num_kept_at: tuple[int, ...] = ()

    @property
    def num_kept_tokens(self) -> int:
        """Proposed tokens that were what would have been sampled."""
        return sum(self.num_kept_at)


@dataclass(frozen=True)
class Load:
    """How busy the engine is between two steps, and what it has counted since it started."""

    num_running: int
    num_waiting: int
    kv_cache_usage: float
    free_kv_tokens: int
    num_preemptions: int = 0
    num_prefix_queries: int = 0
    """Prompt tokens that were looked up in the prefix cache."""
    num_prefix_hits: int = 0
    """Those of them that were found."""
    num_step_tokens: int = 0
    """Tokens that the last step computed."""
    kv_fragmentation: float = 0.0
    """The share of KV slots in blocks held by requests that hold no token."""
    speculated: Speculated | None = None
    """None where nothing is ever proposed."""
