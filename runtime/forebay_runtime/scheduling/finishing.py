"""When a request has ended, and what its token meant.

Pure decisions for the scheduler: nothing here takes or frees anything. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forebay_runtime.request import FinishReason, Output, Request, TokenLogprobs
from forebay_runtime.step_result import Sampled

_NOTHING = Sampled()


@dataclass(frozen=True)
class Ending:
    """Why a request ended, and by which token where it was one."""

    reason: FinishReason
    error: str | None = None
    stop_token_id: int | None = None


@dataclass(frozen=True)
class EndRules:
    """What ends requests besides their own wishes."""

    eos_token_ids: frozenset[int]
    max_model_len: int


def take_tokens(
    request: Request, token_ids: tuple[int, ...], rules: EndRules
) -> tuple[tuple[int, ...], Ending | None]:
    """Add sampled tokens to a request up to its end; those that were added, and the end."""
    for number, token_id in enumerate(token_ids, 1):
        ending = take_token(request, token_id, rules)
        if ending is not None:
            return token_ids[:number], ending
    return token_ids, None


def take_token(request: Request, token_id: int, rules: EndRules) -> Ending | None:
    """Add a sampled token to a request; how it ends with it, if it does."""
    request.output_token_ids.append(token_id)
    constraint = request.constraint
    if constraint is not None:
        constraint.accept(token_id)
    sampling = request.sampling
    may_be_end = token_id in rules.eos_token_ids or token_id in sampling.stop_token_ids
    if may_be_end and _is_end_token(request, token_id, rules.eos_token_ids):
        return Ending("stop", stop_token_id=token_id)
    if constraint is not None and constraint.error is not None:
        return Ending("error", constraint.error)
    if constraint is not None and constraint.is_complete:
        return Ending("stop")
    if request.num_tokens >= min(request.num_wanted_tokens, rules.max_model_len):
        return Ending("length")
    return None


def _is_end_token(request: Request, token_id: int, eos_token_ids: frozenset[int]) -> bool:
    sampling = request.sampling
    if len(request.output_token_ids) < sampling.min_tokens:
        return False
    is_eos = token_id in eos_token_ids and not sampling.ignore_eos
    return is_eos or token_id in sampling.stop_token_ids


def add_prompt_logprobs(request: Request, start: int, scores: Sequence[TokenLogprobs]) -> None:
    """Take the scores of the tokens after start; those known before a preemption stay.

    For a request that asked for them.
    """
    known = request.prompt_logprobs
    if not known:
        known.append(None)  # nothing comes before the first token to score it
    known += scores[len(known) - start - 1 :]


def to_output(
    request: Request,
    ending: Ending | None,
    token_ids: tuple[int, ...] = (),
    sampled: Sampled = _NOTHING,
) -> Output:
    """What a step gave a request, and with the first output what is told once."""
    name = request.request_id
    if ending is None and token_ids and request.has_output and not sampled.logprobs:
        return Output(name, token_ids)
    if ending is not None and ending.reason == "error":
        token_ids = ()
    logprobs = sampled.logprobs.get(name) if token_ids else None
    output = Output(
        name,
        token_ids,
        ending.reason if ending is not None else None,
        error=ending.error if ending is not None else None,
        logprobs=(logprobs,) if logprobs is not None else (),
        embedding=sampled.embeddings.get(name),
        stop_token_id=ending.stop_token_id if ending is not None else None,
    )
    if request.has_output:
        return output
    request.has_output = True
    scores = request.prompt_logprobs
    return output._replace(
        prompt_logprobs=tuple(scores) if len(scores) == len(request.prompt_token_ids) else None,
        num_cached_tokens=request.num_cached_tokens,
        scheduled_at=request.scheduled_at,
    )
