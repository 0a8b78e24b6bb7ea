"""From a body's fields to what the engine is asked, one request a choice; checked throughout."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from forebay_runtime.request import Constraint, Request, SamplingParams
from forebay_runtime.server.api.bodies.fields import MAX_CHOICES
from forebay_runtime.server.api.bodies.generation import PromptBody, SamplingBody
from forebay_runtime.server.api.context import Context
from forebay_runtime.server.api.limits import TokenLimit, check_prompt, check_token_ids
from forebay_runtime.server.api.prompts import LONG_TEXT_CHARS, Prompt
from forebay_runtime.server.errors import BadRequest
from forebay_runtime.server.generation import Telling
from forebay_runtime.text.detokenizer import TextRules
from forebay_runtime.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Scores:
    """How many logprobs are wanted: None for none, 0 for the token's own alone."""

    num_logprobs: int | None = None
    num_prompt_logprobs: int | None = None


@dataclass(frozen=True)
class Ask:
    """How one body's prompts are to be answered."""

    limit: TokenLimit
    param: str
    """The field that holds the prompts."""
    scores: Scores = Scores()
    constrain: Callable[[], Constraint] | None = None
    """Gives each request its own."""


async def build_requests(
    context: Context, body: SamplingBody, prompts: list[Prompt], ask: Ask
) -> list[Request]:
    """Build n requests for each prompt, a prompt's own in a row.

    Raises: BadRequest.
    """
    if body.n * len(prompts) > MAX_CHOICES:
        raise BadRequest(
            f"n is {body.n}: with {len(prompts)} prompts that is {body.n * len(prompts)} answers, "
            f"and one request may ask for at most {MAX_CHOICES}",
            param="n",
        )
    for prompt in prompts:
        check_prompt(prompt.token_ids, context.limits, ask.param, ask.limit.num_least)
    bad_words = await _spell_bad_words(context, body.bad_words)
    sampling = replace(_build_sampling(context, body, ask.scores), bad_words=bad_words)
    return [
        build_request(body, prompt, replace(choice, max_tokens=max_tokens), ask.constrain)
        for prompt in prompts
        for max_tokens in [_resolve(context, body, ask.limit, prompt)]
        for choice in _choices(sampling, body.n)
    ]


def build_request(
    body: PromptBody,
    prompt: Prompt,
    sampling: SamplingParams,
    constrain: Callable[[], Constraint] | None = None,
) -> Request:
    """One engine request; its id is the engine's own, whatever clients call theirs."""
    return Request(
        uuid.uuid4().hex,
        prompt.token_ids,
        sampling,
        priority=body.priority,
        cache_salt=body.cache_salt,
        constraint=None if constrain is None else constrain(),
    )


def build_telling(
    context: Context, body: SamplingBody, interval: int = 1, markers: Iterable[str] = ()
) -> Telling:
    """How the answers of a body are told; markers are special tokens that a parser must see."""
    ends = frozenset() if body.ignore_eos else context.service.end_ids
    rules = TextRules(
        stops=tuple(body.stop),
        includes_stop=body.include_stop_str_in_output,
        keeps_special=not body.skip_special_tokens,
        kept_token_ids=_find_tokens(context.tokenizer, markers),
        min_tokens=body.min_tokens,
    )
    interval = max(interval, context.options.stream_interval)
    return Telling(rules, interval, frozenset(body.stop_token_ids) - ends)


def _find_tokens(tokenizer: Tokenizer, texts: Iterable[str]) -> frozenset[int]:
    encoded = (tokenizer.encode(text, add_special_tokens=False) for text in texts)
    return frozenset(ids[0] for ids in encoded if len(ids) == 1)


def check_num_logprobs(context: Context, value: int | None, param: str) -> int | None:
    """Refuse to score more tokens than --max-logprobs; -1 is the whole vocabulary.

    Raises: BadRequest.
    """
    most = context.options.max_logprobs
    if value is None or 0 <= value <= most:
        return value
    if value == -1 and context.limits.vocab_size <= most:
        return context.limits.vocab_size
    raise BadRequest(
        f"{param} is {value}: it should be from 0 to {most} (--max-logprobs)", param=param
    )


def _build_sampling(context: Context, body: SamplingBody, scores: Scores) -> SamplingParams:
    check_token_ids(body.logit_bias, context.limits, "logit_bias")
    check_token_ids(body.stop_token_ids, context.limits, "stop_token_ids")
    check_token_ids(body.allowed_token_ids or (), context.limits, "allowed_token_ids")
    ends = frozenset() if body.ignore_eos else context.service.end_ids
    allowed = body.allowed_token_ids
    return SamplingParams(
        max_tokens=0,  # each prompt has its own
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=max(0, body.top_k),
        min_p=body.min_p,
        seed=_choose_seed(context, body),
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        repetition_penalty=body.repetition_penalty,
        logit_bias=tuple(body.logit_bias.items()),
        allowed_token_ids=None if allowed is None else frozenset(allowed),
        min_tokens=body.min_tokens,
        stop_token_ids=ends | frozenset(body.stop_token_ids),
        ignore_eos=body.ignore_eos,
        num_logprobs=scores.num_logprobs,
        num_prompt_logprobs=scores.num_prompt_logprobs,
    )


def _choose_seed(context: Context, body: SamplingBody) -> int | None:
    # -1 is how vLLM's clients say that they want none.
    return context.service.draw_seed() if body.seed in (None, -1) else body.seed


def _resolve(context: Context, body: SamplingBody, limit: TokenLimit, prompt: Prompt) -> int:
    max_tokens = limit.resolve(len(prompt.token_ids), context.limits)
    if body.min_tokens > max_tokens:
        raise BadRequest(
            f"min_tokens is {body.min_tokens}: it should be at most {limit.param}, "
            f"which is {max_tokens}",
            param="min_tokens",
        )
    return max_tokens


def _choices(sampling: SamplingParams, n: int) -> Sequence[SamplingParams]:
    """n ways to sample: with a seed each has its own, or all would answer the same."""
    if sampling.seed is None or n == 1:
        return [sampling] * n
    seed = sampling.seed
    return [replace(sampling, seed=seed + index) for index in range(n)]


async def _spell_bad_words(context: Context, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    if sum(map(len, words)) < LONG_TEXT_CHARS:
        return _spell(context.tokenizer, words)
    return await asyncio.to_thread(_spell, context.tokenizer, words)


def _spell(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """A word's tokens at the beginning of a text, and after a space where those are others.

    Raises: BadRequest if a word has no tokens.
    """
    spelled: dict[tuple[int, ...], None] = {}
    for word in words:
        alone = tuple(tokenizer.encode(word, add_special_tokens=False))
        if not alone:
            raise BadRequest("bad_words has a word without tokens", param="bad_words")
        spelled[alone] = None
        spaced = tuple(tokenizer.encode(" " + word.lstrip(), add_special_tokens=False))
        # With the space as a token of its own the word's tokens are banned already.
        if spaced[0] != alone[0] and len(spaced) == len(alone):
            spelled[spaced] = None
    return tuple(spelled)
