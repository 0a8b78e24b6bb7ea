"""Tokens by native kernels are those by torch's operators, from the same chance."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from forebay_kernels.cpu.sampling import Draw, NativeSampling
from forebay_kernels.cpu.score_rows import ScoreRows
from forebay_kernels.cpu.thread_pool import ThreadPool
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.sampling.draw import TorchDrawing, draw_tokens
from forebay_runtime.sampling.native_drawing import NativeDrawing
from forebay_runtime.sampling.scores import rank_tokens, read_ranking

SIZES = (1, 5, 63, 64, 65, 131, 257, 1000, 49_152)


def scores_of(num_rows: int, num_tokens: int, spread: float = 1.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * num_tokens + seed)
    return spread * torch.randn(num_rows, num_tokens, generator=generator)


def native(num_threads: int = 1) -> NativeDrawing:
    return NativeDrawing(NativeSampling(ThreadPool(num_threads) if num_threads > 1 else None))


@pytest.mark.parametrize("num_tokens", SIZES)
@pytest.mark.parametrize("num_rows", [1, 3, 17])
def test_the_best_is_the_first_of_the_largest(num_rows: int, num_tokens: int) -> None:
    scores = scores_of(num_rows, num_tokens).mul(2).round()  # many are equal
    token_ids, best = native(2).find_best(scores)
    assert token_ids == [row.tolist().index(row.max().item()) for row in scores]
    assert best == scores.amax(-1).tolist()


@pytest.mark.parametrize(
    ("value", "told"),
    [(math.nan, math.nan), (math.inf, math.inf), (-math.inf, None)],
    ids=["nan", "infinity", "minus-infinity"],
)
@pytest.mark.parametrize("place", [0, 64, 130])
def test_a_score_that_is_no_number_shows(value: float, told: float | None, place: int) -> None:
    scores = scores_of(2, 131)
    scores[1, place] = value
    best = native().find_best(scores)[1]
    expected = scores[1][scores[1].isfinite()].max().item() if told is None else told
    assert best[0] == scores[0].max().item()
    assert best[1] == expected or math.isnan(best[1]) and math.isnan(expected)


KINDS = {
    "temperature": {"temperature": 0.7},
    "cold": {"temperature": 2e-5},
    "hot": {"temperature": 3.0},
    "min_p": {"min_p": 0.1},
    "one": {"top_k": 1},
    "top_k": {"top_k": 40},
    "more-than-there-are": {"top_k": 100_000},
    "top_p": {"top_p": 0.9},
    "hardly-any": {"top_p": 0.001},
    "nearly-all": {"top_p": 0.9999, "temperature": 1.5},
    "all-of-it": {"top_p": 0.8, "top_k": 50, "min_p": 0.02, "temperature": 0.9},
}


@pytest.mark.parametrize("kind", KINDS)
def test_from_the_same_chance_the_same_tokens_are_drawn(kind: str) -> None:
    sampling = [SamplingParams(9, seed=seed, **KINDS[kind]) for seed in range(8)]
    for num_tokens, spread in product(SIZES, (0.1, 4.0)):
        scores = scores_of(8, num_tokens, spread)
        scores[:, num_tokens // 2 + 1 :: 3] = -math.inf
        ours, theirs = ([Request("", [0], each) for each in sampling] for _ in range(2))
        drawn = native(2).draw(scores, range(8), ours)
        assert drawn == draw_tokens(scores, theirs), (num_tokens, spread)


def test_of_equal_tokens_the_first_are_kept() -> None:
    scores = torch.zeros(1, 300)
    sampling = NativeSampling()
    rows = ScoreRows.of(scores)
    for asked in (Draw(0, 0, 1.0, top_k=7), Draw(0, 0, 1.0, top_p=6.5 / 300)):
        drawn = {sampling.draw(rows, [asked._replace(key=key)])[0] for key in range(200)}
        assert drawn == set(range(7))


def test_a_row_gives_the_same_whoever_shares_the_call_and_the_threads() -> None:
    scores = scores_of(9, 1000)
    draws = [Draw(row, 77 * row, 0.9, top_p=0.8) for row in range(9)]
    together = NativeSampling(ThreadPool(3)).draw(ScoreRows.of(scores), draws)
    alone = [
        NativeSampling().draw(ScoreRows.of(scores[row : row + 1]), [draw._replace(row=0)])[0]
        for row, draw in enumerate(draws)
    ]
    assert together == alone


def test_many_draws_come_out_as_often_as_their_chances_say() -> None:
    chances = torch.tensor([0.5, 0.25, 0.15, 0.1])
    rows = ScoreRows.of(chances.log()[None])
    drawn = NativeSampling().draw(rows, [Draw(0, 31 * key, 1.0) for key in range(20_000)])
    shares = torch.bincount(torch.tensor(drawn), minlength=4) / len(drawn)
    assert torch.allclose(shares, chances, atol=0.015)


@pytest.mark.parametrize("num_tokens", SIZES)
@pytest.mark.parametrize("num_top", [0, 1, 20, 5000])
def test_tokens_are_ranked_as_torch_ranks_them(num_tokens: int, num_top: int) -> None:
    scores = scores_of(3, num_tokens, 3.0)
    scores[2] = scores[2].mul(2).round()
    token_ids = torch.tensor([0, num_tokens // 2, num_tokens - 1])
    ours, theirs = (
        read_ranking(form.rank(scores, token_ids, num_top)) for form in (native(2), TorchDrawing())
    )
    for row, (own, their) in enumerate(zip(ours, theirs, strict=True)):
        assert (own.token_id, own.rank) == (their.token_id, their.rank)
        assert own.logprob == pytest.approx(their.logprob, abs=1e-5)
        assert [score for _, score in own.top] == pytest.approx(
            [score for _, score in their.top], abs=1e-5
        )
        if row < 2 and num_top <= 20:  # where no two are equal
            assert [token_id for token_id, _ in own.top] == [token_id for token_id, _ in their.top]


def test_a_row_without_an_order_is_ranked_as_nothing() -> None:
    scores = scores_of(1, 131)
    scores[0, 70] = math.nan
    ranking = native().rank(scores, torch.tensor([3]), 5)
    assert ranking.own.isnan().all() and ranking.best.isnan().all()
    assert rank_tokens(scores, torch.tensor([3]), 5).own.isnan().all()


@pytest.mark.parametrize("row", [-1, 2])
def test_a_row_that_is_not_there_is_refused(row: int) -> None:
    with pytest.raises(ValueError, match="outside of 2 rows"):
        NativeSampling().draw(ScoreRows.of(scores_of(2, 5)), [Draw(row, 0, 1.0)])


@pytest.mark.parametrize(
    ("token_id", "num_top"), [(5, 1), (-1, 1), (0, 6)], ids=["beyond", "below", "too many"]
)
def test_a_ranking_beyond_the_vocabulary_is_refused(token_id: int, num_top: int) -> None:
    rows = ScoreRows.of(scores_of(1, 5))
    with pytest.raises(ValueError):
        NativeSampling().rank(rows, torch.tensor([token_id]).numpy(), num_top)
