"""Draws tokens by chance, within temperature, min_p, top_k and top_p.

Every request draws from a generator of its own, and no row's arithmetic looks at another row: what
a request gets depends on its seed and its logits, never on who shares the batch. A draw is a race:
each token's chance is divided by an exponential number of its own, and the largest wins. So the
last bits of the logits, which do depend on the batch, decide only where two tokens all but tie;
a point on the line of running sums would move past a border every few hundred tokens.
Source: Efraimidis and Spirakis 2006 (weighted sampling) §2; Steele et al. 2014 (SplitMix) fig. 14.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from forebay_kernels.cpu.score_rows import Scores, to_tensor
from forebay_runtime.request import SamplingParams
from forebay_runtime.sampling.scores import Ranking, rank_tokens


class Row(Protocol):
    """Whose token a row of logits gives: a request, or one of its tokens further ahead."""

    @property
    def sampling(self) -> SamplingParams:
        """How it is chosen."""

    def draw(self) -> int:
        """63 bits of chance for this token."""


_HEAT_TOKENS = 256
"""Without a filter, heats of so many tokens race by their sums, then the winner's own tokens: as
exact as one race of all, with few numbers to draw."""
_MOST_CANDIDATES = 1024
"""Tokens that are put in order at first: a nucleus is seldom larger, and to sort a whole vocabulary
takes ten times as long."""


_MOST_ROWS = 8
"""Rows of which a CPU draws at once: of more, what is computed on the way leaves its caches, and
64 rows took four times as long."""


class TorchDrawing:
    """What is done with whole rows of scores, by torch's operators."""

    def __init__(self, most_rows: int = _MOST_ROWS) -> None:
        """most_rows: that one call may take."""
        self._most_rows = min(most_rows, _MOST_ROWS)

    @torch.inference_mode()
    def find_best(self, logits: Scores) -> tuple[list[int], list[float]]:
        """Each row's best token and its score, NaN where any is. Shapes: logits [R, V] float32."""
        logits = to_tensor(logits)
        best, token_ids = logits.max(-1)
        return token_ids.tolist(), best.tolist()

    @torch.inference_mode()
    def draw(self, logits: Scores, rows: Sequence[int], owners: Sequence[Row]) -> list[int]:
        """A token by chance of each of some rows, whose best scores are finite."""
        logits = to_tensor(logits)
        token_ids: list[int] = []
        for start in range(0, len(rows), self._most_rows):
            few = slice(start, start + self._most_rows)
            token_ids += draw_tokens(logits[list(rows[few])], owners[few])
        return token_ids

    @torch.inference_mode()
    def rank(self, logits: Tensor, token_ids: Tensor, num_top: int) -> Ranking:
        """Each row's token ranked."""
        return rank_tokens(logits, token_ids, num_top)


def draw_tokens(logits: Tensor, requests: Sequence[Row]) -> list[int]:
    """One token for each row, by chance.

    Shapes: logits [R, V], finite or -inf, and not -inf everywhere; R rows that are not greedy.
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


def _draw_plain(logits: Tensor, requests: Sequence[Row]) -> list[int]:
    """Draw from all tokens but those below min_p. Shapes: logits [R, V]."""
    probabilities = _probabilities(logits, requests)
    num_tokens = probabilities.shape[-1]
    heats = functional.pad(probabilities, (0, -num_tokens % _HEAT_TOKENS)).unflatten(
        1, (-1, _HEAT_TOKENS)
    )
    keys = _draw_keys(requests, logits.device)
    num_heats = heats.shape[1]
    # Heats are numbered past the tokens, so that the two races are independent.
    names = torch.arange(num_tokens, num_tokens + num_heats, device=logits.device)
    winner = _race(heats.sum(-1, dtype=torch.float64), names, keys)
    first = winner * _HEAT_TOKENS
    token_ids = first + torch.arange(_HEAT_TOKENS, device=logits.device)
    chances = heats.gather(1, winner.unsqueeze(2).expand(-1, 1, _HEAT_TOKENS)).squeeze(1)
    return (first + _race(chances, token_ids, keys)).squeeze(1).tolist()


def _draw_filtered(logits: Tensor, requests: Sequence[Row]) -> list[int]:
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
    candidates = Candidates(best[rows], cumulative[rows], token_ids[rows], totals[rows])
    kept = _draw_kept(candidates, [requests[row] for row in rows]) if rows else []
    chosen = dict(zip(rows, kept, strict=True))
    for row, request in enumerate(requests):
        if row not in chosen:
            best, token_ids = probabilities[row : row + 1].sort(descending=True)
            candidates = Candidates(best, _cumulate(best), token_ids, totals[row : row + 1])
            chosen[row] = _draw_kept(candidates, [request])[0]
    return [chosen[row] for row in range(len(requests))]


def _is_enough(request: Row, share: float, num_candidates: int) -> bool:
    """Do the first candidates, which hold that share, include all that top_k and top_p keep?"""
    if request.sampling.top_k:
        return request.sampling.top_k <= num_candidates
    return share >= request.sampling.top_p


@dataclass(frozen=True)
class Candidates:
    """Tokens in falling order, of which top_k and top_p keep some.

    probabilities: [R, C]; cumulative: [R, C] float64, their running sums; token_ids: [R, C] int64;
    totals: [R, 1] float64, what all tokens hold, those past the candidates too.
    """

    probabilities: Tensor
    cumulative: Tensor
    token_ids: Tensor
    totals: Tensor


def _draw_kept(candidates: Candidates, requests: Sequence[Row]) -> list[int]:
    """Draw from what top_k and top_p keep."""
    cumulative = candidates.cumulative
    num_candidates, device = cumulative.shape[-1], cumulative.device
    top_k = [min(r.sampling.top_k or num_candidates, num_candidates) for r in requests]
    last = torch.tensor(top_k, device=device).unsqueeze(1) - 1
    is_on = torch.tensor([r.sampling.top_k > 0 for r in requests], device=device).unsqueeze(1)
    mass = torch.where(is_on, cumulative.gather(1, last), candidates.totals)
    top_p = torch.tensor([r.sampling.top_p for r in requests], dtype=torch.float64, device=device)
    nucleus = torch.searchsorted(cumulative, mass * top_p.unsqueeze(1))
    is_out = torch.arange(num_candidates, device=device) > torch.minimum(nucleus, last)
    chances = candidates.probabilities.masked_fill(is_out, 0.0)
    winner = _race(chances, candidates.token_ids, _draw_keys(requests, device))
    return candidates.token_ids.gather(1, winner).squeeze(1).tolist()


def _probabilities(logits: Tensor, requests: Sequence[Row]) -> Tensor:
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


def _draw_keys(requests: Sequence[Row], device: torch.device) -> Tensor:
    """Each request's chance for this token. Shapes: out [R, 1] int64."""
    return torch.tensor([request.draw() for request in requests], device=device).unsqueeze(1)


def _race(chances: Tensor, names: Tensor, keys: Tensor) -> Tensor:
    """The place in each row of the one that wins, each as often as its chance says.

    Shapes: chances [R, C]; names [C] or [R, C] int64, no two alike in a row; keys [R, 1] int64;
    out [R, 1] int64.
    """
    bits = _mix(keys + names * _GOLDEN)
    uniform = ((bits >> 11 & _LOW_53_BITS).double() + 0.5) * 2.0**-53
    return (chances / -uniform.log()).argmax(-1, keepdim=True)


_GOLDEN = -0x61C8864680B583EB
_LOW_53_BITS = (1 << 53) - 1


def _mix(bits: Tensor) -> Tensor:
    """Scatter 64 bits so that neighbours have nothing in common (SplitMix64's last steps)."""
    bits = (bits ^ (bits >> 30 & (1 << 34) - 1)) * -0x40A7B892E31B1A47
    bits = (bits ^ (bits >> 27 & (1 << 37) - 1)) * -0x6B2FB644ECCEEE15
    return bits ^ (bits >> 31 & (1 << 33) - 1)
