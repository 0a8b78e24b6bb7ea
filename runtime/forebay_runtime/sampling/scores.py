"""How likely tokens were by the model's own scores, before temperature, edits and filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from torch import Tensor

from forebay_runtime.request import TokenLogprobs
from forebay_runtime.sampling.transfer import send
from forebay_runtime.scheduling.batch import Chunk
from forebay_runtime.step_result import PromptStates

Score = tuple[int, float]
"""A token id and its logprob."""


class Ranking(NamedTuple):
    """Rows' tokens with their logprobs and ranks, and the best beside them; where they were made.

    token_ids, ranks: [n] int64; own: [n], the tokens' logprobs; best_ids, best: [n, k], falling.
    """

    token_ids: Tensor
    own: Tensor
    ranks: Tensor
    best_ids: Tensor
    best: Tensor


def rank_tokens(logits: Tensor, token_ids: Tensor, num_top: int) -> Ranking:
    """Each row's token with its logprob and rank, and the num_top best beside it.

    Shapes: logits [n, V]; token_ids [n] int64.
    """
    chosen = token_ids.unsqueeze(1)
    ranks = (logits > logits.gather(1, chosen)).sum(1) + 1
    logprobs = logits.log_softmax(-1)
    own = logprobs.gather(1, chosen).squeeze(1)
    best, best_ids = logprobs.topk(min(num_top, logits.shape[1]))
    return Ranking(token_ids, own, ranks, best_ids, best)


def read_ranking(ranking: Ranking) -> list[TokenLogprobs]:
    """What a ranking says of each row; on a GPU it waits."""
    return [
        TokenLogprobs(
            token_id, logprob, rank, _ordered((token_id, logprob), zip(top_ids, top, strict=True))
        )
        for token_id, logprob, rank, top_ids, top in zip(
            *(column.tolist() for column in ranking), strict=True
        )
    ]


def _ordered(own: Score, best: Iterable[Score]) -> tuple[Score, ...]:
    """The best in falling order; among equals the token itself first, then by id.

    Where many are as good as the token, it stands for one of them: narrow dtypes make many equal.
    """
    top = list(best)
    if top and own[1] >= top[-1][1] and own not in top:
        top[-1] = own
    return tuple(sorted(top, key=lambda score: (-score[1], score != own, score[0])))


Rank = Callable[[Tensor, Tensor, int], Ranking]
"""What rank_tokens does."""


def rank_prompt(chunk: Chunk, states: PromptStates, rank: Rank, most_rows: int) -> list[Ranking]:
    """The prompt's tokens after each of a chunk's, a few rows of logits at a time."""
    request, hidden = chunk.request, states.hidden[chunk.request.request_id]
    following = request.prompt_token_ids[chunk.start + 1 : chunk.start + 1 + len(hidden)]
    if not following:
        return []
    [token_ids] = send([np.array(following, np.int64)], hidden.device)
    num_top = request.sampling.num_prompt_logprobs or 0
    rankings: list[Ranking] = []
    for start in range(0, len(following), states.score_rows):
        some = token_ids[start : start + states.score_rows]
        logits = states.score(hidden[start : start + states.score_rows])
        for row in range(0, len(some), most_rows):
            rows = slice(row, row + most_rows)
            rankings.append(rank(logits[rows], some[rows], num_top))
    return rankings
