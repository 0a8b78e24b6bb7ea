"""What changes a request's scores before its token is picked: bans, biases, penalties, constraints.

The sampler builds a request's edits once, at its first token, and applies them to its row alone;
most requests have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from forebay_runtime.request import Request
from forebay_runtime.sampling.penalties import Penalties

_BANNED = float("-inf")

Edit = Callable[[Tensor, Request, Sequence[int]], None]
"""Changes a request's scores [V] in place, as after its tokens and those taken for granted."""


def build_edits(request: Request, end_token_ids: frozenset[int], like: Tensor) -> tuple[Edit, ...]:
    """A request's edits, in the order in which they apply; none for most requests.

    end_token_ids: the model's own. like: scores [V] of the kind that will be edited.
    """
    sampling = request.sampling
    edits: list[Edit] = []
    if sampling.allowed_token_ids is not None:
        edits.append(_AllowOnly(_to_index(sampling.allowed_token_ids, like)))
    if sampling.bad_words:
        edits.append(_BanWords(sampling.bad_words, like))
    if sampling.min_tokens > 0:
        edits.append(_BanEnd(_to_index(sampling.stop_token_ids | end_token_ids, like)))
    if sampling.logit_bias:
        edits.append(_Bias(dict(sampling.logit_bias), like))
    if sampling.repetition_penalty != 1 or sampling.frequency_penalty or sampling.presence_penalty:
        edits.append(Penalties(request))
    if request.constraint is not None:
        edits.append(_constrain)
    return tuple(edits)


def explain_nothing_left(request: Request) -> str:
    """Why a request's edits left no token, for the client."""
    if request.constraint is not None and request.constraint.error is not None:
        return request.constraint.error
    return (
        "No token is left to choose: allowed_token_ids, bad_words, min_tokens, logit_bias and the "
        "structured output that was asked for exclude each other here"
    )


def _to_index(token_ids: Iterable[int], like: Tensor) -> Tensor:
    """Token ids as an index; those beyond the vocabulary name nothing and are left out."""
    known = sorted(token_id for token_id in token_ids if 0 <= token_id < len(like))
    return torch.tensor(known, dtype=torch.int64, device=like.device)


class _AllowOnly:
    """Bans all tokens but some."""

    def __init__(self, token_ids: Tensor) -> None:
        self._token_ids = token_ids

    def __call__(self, scores: Tensor, request: Request, assumed: Sequence[int]) -> None:
        kept = scores[self._token_ids]
        scores.fill_(_BANNED)
        scores[self._token_ids] = kept


class _BanWords:
    """Bans the last token of each word whose other tokens were just sampled."""

    def __init__(self, words: Sequence[tuple[int, ...]], like: Tensor) -> None:
        self._always = _to_index({word[0] for word in words if len(word) == 1}, like)
        self._longer = [word for word in words if len(word) > 1 and 0 <= word[-1] < len(like)]
        self._most_before = max(map(len, words))

    def __call__(self, scores: Tensor, request: Request, assumed: Sequence[int]) -> None:
        scores[self._always] = _BANNED
        output = [*request.output_token_ids[-self._most_before :], *assumed]
        for word in self._longer:
            if tuple(output[1 - len(word) :]) == word[:-1]:
                scores[word[-1]] = _BANNED


class _BanEnd:
    """Bans what would end a request before its min_tokens."""

    def __init__(self, token_ids: Tensor) -> None:
        self._token_ids = token_ids

    def __call__(self, scores: Tensor, request: Request, assumed: Sequence[int]) -> None:
        if request.num_sampled_tokens + len(assumed) >= request.sampling.min_tokens:
            return
        # What is structurally complete can only end, however short it is.
        if request.constraint is None or not request.constraint.is_complete:
            scores[self._token_ids] = _BANNED


class _Bias:
    """Adds to some tokens' scores."""

    def __init__(self, biases: dict[int, float], like: Tensor) -> None:
        self._token_ids = _to_index(biases, like)
        amounts = [biases[token_id] for token_id in self._token_ids.tolist()]
        self._amounts = torch.tensor(amounts, dtype=like.dtype, device=like.device)

    def __call__(self, scores: Tensor, request: Request, assumed: Sequence[int]) -> None:
        scores[self._token_ids] += self._amounts


def _constrain(scores: Tensor, request: Request, _: Sequence[int]) -> None:
    """Ban what the request's constraint does not allow next; it walks over known tokens only."""
    if request.constraint is None:
        return
    bits = np.frombuffer(request.constraint.allowed(), np.uint8)
    is_allowed = np.unpackbits(bits, count=len(scores), bitorder="little").view(np.bool_)
    scores.masked_fill_(~torch.from_numpy(is_allowed).to(scores.device), _BANNED)
