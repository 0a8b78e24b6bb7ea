"""Drawing tokens: the best where that is asked, and else only of what the filters keep."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from forebay_kernels import reference
from forebay_kernels.gpu.sampling.draw import Wishes, draw
from gpu_parts.maker import Check, Maker

_NUM_ROWS = 9
_TOP_K, _TOP_P, _MIN_P = 40, 0.8, 0.01


def draw_checks() -> Iterator[tuple[str, Check]]:
    """By name."""
    for vocab_size in (131, 4999):
        yield f"draw of {vocab_size}, the best", lambda m, v=vocab_size: _best(m, v)
        yield f"draw of {vocab_size}, what is kept", lambda m, v=vocab_size: _kept(m, v)


def _best(maker: Maker, vocab_size: int) -> tuple[Tensor, Tensor]:
    logits = maker.normal(_NUM_ROWS, vocab_size).float()
    return _draw(maker, logits, 0.0), logits.argmax(1)


def _kept(maker: Maker, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Whether each token that was drawn is one of the kept; all should be."""
    logits = maker.normal(_NUM_ROWS, vocab_size).float()
    token_ids = _draw(maker, logits, 1.0).cpu()
    is_kept = [reference.kept_tokens(row, _TOP_K, _TOP_P, _MIN_P) for row in logits]
    return torch.stack(is_kept)[torch.arange(_NUM_ROWS), token_ids], torch.ones(_NUM_ROWS)


def _draw(maker: Maker, logits: Tensor, temperature: float) -> Tensor:
    def each(value: float, dtype: torch.dtype) -> Tensor:
        return maker.there(torch.full((_NUM_ROWS,), value, dtype=dtype))

    wishes = Wishes(
        sources=each(-1, torch.int32),
        temperatures=each(temperature, torch.float32),
        top_ks=each(_TOP_K, torch.int32),
        top_ps=each(_TOP_P, torch.float32),
        min_ps=each(_MIN_P, torch.float32),
        keys=maker.there(torch.arange(_NUM_ROWS) * 982_451_653),
        count_rows=each(-1, torch.int32),
    )
    counts = torch.zeros(1, logits.shape[1], dtype=torch.int16, device=maker.device)
    scores = maker.there(logits)
    return draw(scores, scores, wishes, counts)[0]
