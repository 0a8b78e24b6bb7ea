"""Draws tokens by chance, within temperature, min_p, top_k and top_p.

Every request draws from a generator of its own, one number a token, and no row's arithmetic looks
at another row: what a request gets depends on its seed and its logits, never on who shares the
batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from forebay_runtime.request import Request

_MOST_CANDIDATES = 1024
"""Tokens that are put in order at first: a nucleus is seldom larger, and to sort a whole vocabulary
takes ten times as long."""


def draw_tokens(logits: Tensor, requests: Sequence[Request]) -> list[int]:
    """One token for each request, by chance.

    Shapes: logits [R, V], finite or -inf, and not -inf everywhere; R requests that are not greedy.
    """
    is_filtered = [r.sampling.top_k > 0 or r.sampling.top_p < 1 for r in requests]
    token_ids = [0] * len(requests)
    for draw, is_meant in ((_draw_plain, False), (_draw_filtered, True)):
        rows = [row for row, is_row in enumerate(is_filtered) if is_row == is_meant]
        if rows:
            chosen = draw(logits[rows], [requests[row] for row in rows])
            for row, token_id in zip(rows, chosen, strict=True):
                token_ids[row] = token_id
    return token_ids


def _draw_plain(logits: Tensor, requests: Sequence[Request]) -> list[int]:
    """Draw from all tokens but those below min_p. Shapes: logits [R, V]."""
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
    totals = probabilities.sum(-1, keepdim=True, dtype=torch.float64)
    has_all = [
        _is_enough(request, share, best.shape[-1])
        for request, share in zip(
            requests, (cumulative[:, -1:] / totals).squeeze(1).tolist(), strict=True
        )
    ]
    rows = [row for row, is_enough in enumerate(has_all) if is_enough]
    candidates = Candidates(cumulative[rows], token_ids[rows], totals[rows])
    kept = _draw_kept(candidates, [requests[row] for row in rows]) if rows else []
    chosen = dict(zip(rows, kept, strict=True))
    for row, request in enumerate(requests):
        if row not in chosen:
            best, token_ids = probabilities[row : row + 1].sort(descending=True)
            candidates = Candidates(_cumulate(best), token_ids, totals[row : row + 1])
            chosen[row] = _draw_kept(candidates, [request])[0]
    return [chosen[row] for row in range(len(requests))]


def _is_enough(request: Request, share: float, num_candidates: int) -> bool:
    """Do the first candidates, which hold that share, include all that top_k and top_p keep?"""
    if request.sampling.top_k:
        return request.sampling.top_k <= num_candidates
    return share >= request.sampling.top_p


@dataclass(frozen=True)
class Candidates:
    """Tokens in falling order, of which top_k and top_p keep some.

    cumulative: [R, C] float64, running sums of their probabilities; token_ids: [R, C] int64;
    totals: [R, 1] float64, what all tokens hold, those past the candidates too.
    """

    cumulative: Tensor
    token_ids: Tensor
    totals: Tensor


def _draw_kept(candidates: Candidates, requests: Sequence[Request]) -> list[int]:
    """Draw from what top_k and top_p keep."""
    cumulative = candidates.cumulative
    num_candidates, device = cumulative.shape[-1], cumulative.device
    top_k = [min(r.sampling.top_k or num_candidates, num_candidates) for r in requests]
    last = torch.tensor(top_k, device=device).unsqueeze(1) - 1
    is_on = torch.tensor([r.sampling.top_k > 0 for r in requests], device=device).unsqueeze(1)
    mass = torch.where(is_on, cumulative.gather(1, last), candidates.totals)
    top_p = torch.tensor([r.sampling.top_p for r in requests], dtype=torch.float64, device=device)
    nucleus = torch.searchsorted(cumulative, mass * top_p.unsqueeze(1))
    kept = cumulative.gather(1, torch.minimum(nucleus, last))
    return candidates.token_ids.gather(1, _pick(cumulative, kept, requests)).squeeze(1).tolist()


def _probabilities(logits: Tensor, requests: Sequence[Request]) -> Tensor:
    """Softmax at each request's temperature, zero below its min_p. Shapes: logits, out [R, V]."""
    device = logits.device
    temperatures = torch.tensor([r.sampling.temperature for r in requests], device=device)
    # The best is brought to zero first, or a low temperature would overflow.
    shifted = logits - logits.amax(-1, keepdim=True)
    probabilities = torch.softmax(shifted / temperatures.unsqueeze(1), -1)
    if any(r.sampling.min_p > 0 for r in requests):
        min_p = torch.tensor([r.sampling.min_p for r in requests], device=device).unsqueeze(1)
        least = probabilities.amax(-1, keepdim=True) * min_p
        probabilities.masked_fill_(probabilities < least, 0.0)
    return probabilities


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
    # A point may round up to the whole mass; the last place that adds to it is what was meant.
    return torch.minimum(places, torch.searchsorted(cumulative, mass.contiguous()))
