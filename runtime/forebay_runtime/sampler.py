"""Picks each request's next token from its logits.

Every request draws from a generator of its own, one number a token, and no row's arithmetic looks
at another row: what a request gets depends on its seed and its logits, never on who shares the
batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from forebay_runtime.request import Request
from forebay_runtime.scheduler import Batch

_MOST_CANDIDATES = 1024
"""Tokens that are put in order at first: a nucleus is seldom larger, and to sort a whole vocabulary
takes ten times as long."""


_Draw = Callable[[Tensor, Sequence[Request]], list[int]]


class Sampler:
    """Greedy, temperature, top-k and top-p."""

    def sample(self, logits: Tensor, batch: Batch) -> list[int]:
        """One token for each of batch.sampled.

        Shapes: logits [R, V] float32, R requests.
        """
        requests = batch.sampled
        if not requests:
            return []
        with torch.inference_mode():
            token_ids: list[int] = logits.argmax(-1).tolist()
            for draw, rows in _split(requests):
                chosen = draw(logits[rows], [requests[row] for row in rows])
                for row, token_id in zip(rows, chosen, strict=True):
                    token_ids[row] = token_id
        return token_ids


def _split(requests: Sequence[Request]) -> list[tuple[_Draw, list[int]]]:
    """The rows that need more than the best token, by what they need."""
    plain: list[int] = []
    filtered: list[int] = []
    for row, request in enumerate(requests):
        if not request.sampling.is_greedy:
            is_filtered = request.sampling.top_k > 0 or request.sampling.top_p < 1
            (filtered if is_filtered else plain).append(row)
    return [
        (draw, rows) for draw, rows in ((_draw_plain, plain), (_draw_filtered, filtered)) if rows
    ]


def _draw_plain(logits: Tensor, requests: Sequence[Request]) -> list[int]:
    """Draw from all tokens. Shapes: logits [R, V]."""
    cumulative = _cumulate(_probabilities(logits, requests))
    return _pick(cumulative, cumulative[:, -1:], requests).squeeze(1).tolist()


def _draw_filtered(logits: Tensor, requests: Sequence[Request]) -> list[int]:
    """Draw from the top_k best tokens, and of these from the fewest that hold top_p.

    Shapes: logits [R, V].
    Source: Holtzman et al. 2020 (nucleus sampling) §3.1.
    """
    probabilities = _probabilities(logits, requests)
    best, token_ids = probabilities.topk(min(_MOST_CANDIDATES, logits.shape[-1]))
    cumulative = _cumulate(best)
    has_all = [
        _is_enough(request, mass, best.shape[-1])
        for request, mass in zip(requests, cumulative[:, -1].tolist(), strict=True)
    ]
    rows = [row for row, is_enough in enumerate(has_all) if is_enough]
    kept = [requests[row] for row in rows]
    chosen = dict(zip(rows, _draw_kept(cumulative[rows], token_ids[rows], kept), strict=True))
    for row, request in enumerate(requests):
        if row not in chosen:
            best, token_ids = probabilities[row : row + 1].sort(descending=True)
            chosen[row] = _draw_kept(_cumulate(best), token_ids, [request])[0]
    return [chosen[row] for row in range(len(requests))]


def _is_enough(request: Request, mass: float, num_candidates: int) -> bool:
    """Do the first candidates, which hold mass, include all that top_k and top_p keep?"""
    if request.sampling.top_k:
        return request.sampling.top_k <= num_candidates
    return mass >= request.sampling.top_p


def _draw_kept(cumulative: Tensor, token_ids: Tensor, requests: Sequence[Request]) -> list[int]:
    """Draw from what top_k and top_p keep of tokens in falling order.

    Shapes: cumulative [R, C] float64; token_ids [R, C] int64; C candidates.
    """
    if not requests:
        return []
    num_candidates = cumulative.shape[-1]
    top_k = [min(r.sampling.top_k or num_candidates, num_candidates) for r in requests]
    # Where top_k is off, all tokens hold a mass of one, also those past the candidates.
    last = torch.tensor(top_k, device=cumulative.device).unsqueeze(1) - 1
    is_on = torch.tensor([r.sampling.top_k > 0 for r in requests], device=last.device).unsqueeze(1)
    mass = torch.where(is_on, cumulative.gather(1, last), 1.0)
    top_p = torch.tensor(
        [r.sampling.top_p for r in requests], dtype=torch.float64, device=last.device
    )
    nucleus = torch.searchsorted(cumulative, mass * top_p.unsqueeze(1))
    kept = cumulative.gather(1, torch.minimum(nucleus, last))
    return token_ids.gather(1, _pick(cumulative, kept, requests)).squeeze(1).tolist()


def _probabilities(logits: Tensor, requests: Sequence[Request]) -> Tensor:
    """Softmax at each request's temperature. Shapes: logits, out [R, V]."""
    temperatures = torch.tensor([r.sampling.temperature for r in requests], device=logits.device)
    # The best is brought to zero first, or a low temperature would overflow.
    shifted = logits - logits.amax(-1, keepdim=True)
    return torch.softmax(shifted / temperatures.unsqueeze(1), -1)


def _cumulate(probabilities: Tensor) -> Tensor:
    """Running sums, in float64: over a large vocabulary float32 loses the rare tokens."""
    return probabilities.cumsum(-1, dtype=torch.float64)


def _pick(cumulative: Tensor, mass: Tensor, requests: Sequence[Request]) -> Tensor:
    """The place in each row where a point drawn from [0, mass) falls.

    Shapes: cumulative [R, C] float64; mass [R, 1]; out [R, 1] int64.
    """
    draws = [request.draw() for request in requests]
    points = torch.tensor(draws, dtype=torch.float64, device=cumulative.device).unsqueeze(1) * mass
    places = torch.searchsorted(cumulative, points, right=True)
    return places.clamp_(max=cumulative.shape[-1] - 1)
