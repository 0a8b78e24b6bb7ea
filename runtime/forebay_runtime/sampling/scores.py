"""How likely tokens were by the model's own scores, before temperature, edits and filters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from forebay_runtime.request import TokenLogprobs
from forebay_runtime.scheduling.batch import Chunk
from forebay_runtime.step_result import PromptStates

Score = tuple[int, float]
"""A token id and its logprob."""


def score_tokens(logits: Tensor, token_ids: Sequence[int], num_top: int) -> list[TokenLogprobs]:
    """Each row's token with its logprob and rank, and the num_top best beside it.

    Shapes: logits [n, V]; n token ids.
    """
    chosen = torch.tensor(token_ids, device=logits.device).unsqueeze(1)
    ranks = (logits > logits.gather(1, chosen)).sum(1) + 1
    logprobs = logits.log_softmax(-1)
    own = logprobs.gather(1, chosen).squeeze(1)
    best, best_ids = logprobs.topk(min(num_top, logits.shape[1]))
    columns = (token_ids, own.tolist(), ranks.tolist(), best_ids.tolist(), best.tolist())
    return [
        TokenLogprobs(
            token_id, logprob, rank, _ordered((token_id, logprob), zip(top_ids, top, strict=True))
        )
        for token_id, logprob, rank, top_ids, top in zip(*columns, strict=True)
    ]


def _ordered(own: Score, best: Iterable[Score]) -> tuple[Score, ...]:
    """The best in falling order; among equals the token itself first, then by id.

    Where many are as good as the token, it stands for one of them: narrow dtypes make many equal.
    """
    top = list(best)
    if top and own[1] >= top[-1][1] and own not in top:
        top[-1] = own
    return tuple(sorted(top, key=lambda score: (-score[1], score != own, score[0])))


def score_prompt(chunk: Chunk, states: PromptStates, most_rows: int) -> tuple[TokenLogprobs, ...]:
    """The prompt's tokens after each of a chunk's, a few rows of logits at a time."""
    request, hidden = chunk.request, states.hidden[chunk.request.request_id]
    following = request.prompt_token_ids[chunk.start + 1 : chunk.start + 1 + len(hidden)]
    num_top = request.sampling.num_prompt_logprobs or 0
    scored: list[TokenLogprobs] = []
    for start in range(0, len(following), states.score_rows):
        token_ids = following[start : start + states.score_rows]
        logits = states.score(hidden[start : start + states.score_rows])
        for row in range(0, len(token_ids), most_rows):
            rows = slice(row, row + most_rows)
            scored += score_tokens(logits[rows], token_ids[rows], num_top)
    return tuple(scored)
