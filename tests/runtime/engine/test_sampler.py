"""Which tokens may come, how often, and that nobody's draw depends on who shares the batch."""

from collections import Counter

import pytest
import torch

from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.sampling.sampler import Sampler
from forebay_runtime.scheduling.batch import Batch, Chunk
from forebay_runtime.step_result import Sampled, StepResult

LOGITS = torch.tensor([0.1, 0.4, 0.3, 0.15, 0.05]).log()


def requests(number: int, **sampling: object) -> list[Request]:
    return [
        Request(str(index), [0], SamplingParams(max_tokens=1, seed=index, **sampling))  # type: ignore[arg-type]
        for index in range(number)
    ]


def sample(logits: torch.Tensor, asked: list[Request]) -> list[int]:
    batch = Batch(tuple(Chunk.of(request, request.num_tokens - 1, 1) for request in asked))
    return list(Sampler().sample(StepResult(logits), batch).wait().token_ids)


def draw(number: int, **sampling: object) -> Counter[int]:
    return Counter(sample(LOGITS.expand(number, -1), requests(number, **sampling)))


@pytest.mark.parametrize(
    ("sampling", "possible"),
    [
        pytest.param({"temperature": 0}, {1}, id="greedy"),
        pytest.param({"temperature": 1e-6}, {1}, id="all-but-greedy"),
        pytest.param({"temperature": 1e-4}, {1}, id="a-low-temperature-does-not-overflow"),
        pytest.param({}, {0, 1, 2, 3, 4}, id="everything"),
        pytest.param({"top_k": 1}, {1}, id="the-best"),
        pytest.param({"top_k": 3}, {1, 2, 3}, id="three-best"),
        pytest.param({"top_k": 99}, {0, 1, 2, 3, 4}, id="more-than-there-are"),
        pytest.param({"top_p": 0.39}, {1}, id="nucleus-of-one"),
        pytest.param({"top_p": 0.41}, {1, 2}, id="nucleus-reaches-past-its-mass"),
        pytest.param({"top_p": 0.96}, {0, 1, 2, 3, 4}, id="nucleus-of-all"),
        # Of the three best, renormalised, 0.4/0.85 is less than a half and 0.7/0.85 is more.
        pytest.param({"top_k": 3, "top_p": 0.5}, {1, 2}, id="nucleus-of-the-best"),
        pytest.param({"top_k": 3, "top_p": 0.47}, {1}, id="nucleus-counts-what-top-k-left"),
    ],
)
def test_exactly_the_kept_tokens_are_drawn(sampling: dict[str, object], possible: set[int]) -> None:
    assert set(draw(500, **sampling)) == possible


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    counts = draw(20_000)
    shares = torch.tensor([counts[token_id] / 20_000 for token_id in range(5)])
    torch.testing.assert_close(shares, LOGITS.exp(), atol=0.015, rtol=0)


def test_tokens_far_apart_in_the_vocabulary_are_drawn_as_often_as_they_are_likely() -> None:
    shares = torch.tensor([0.1, 0.2, 0.3, 0.4])
    logits = torch.full((1_100,), -30.0)
    logits[::300] = shares.log()
    counts = Counter(sample(logits.expand(10_000, -1), requests(10_000)))
    drawn = torch.tensor([counts[token_id] / 10_000 for token_id in range(0, 1_100, 300)])
    torch.testing.assert_close(drawn, shares, atol=0.02, rtol=0)


@pytest.mark.parametrize("sampling", [{}, {"top_p": 0.95}, {"top_k": 50}], ids=str)
def test_a_seeds_draw_stands_though_the_last_bits_of_the_scores_change(
    sampling: dict[str, object],
) -> None:
    """Without --batch-invariant they do, by who shares the batch."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2_000, 5_000, generator=generator)
    nearly = logits + torch.randn(logits.shape, generator=generator) * 1e-4
    drawn = (sample(scores, requests(2_000, **sampling)) for scores in (logits, nearly))
    assert sum(one != other for one, other in zip(*drawn, strict=True)) <= 3


def test_temperature_flattens() -> None:
    assert draw(4_000, temperature=0.5)[1] > draw(4_000)[1] > draw(4_000, temperature=2)[1]


def test_a_seed_gives_the_same_tokens_again_and_another_gives_others() -> None:
    logits = torch.zeros(1, 1_000)

    def sequence(seed: int) -> list[int]:
        request = Request("a", [0], SamplingParams(max_tokens=9, seed=seed))
        for _ in range(8):
            request.output_token_ids += sample(logits, [request])
        return request.output_token_ids

    assert sequence(5) == sequence(5)
    assert sequence(5) != sequence(6)
    assert len(set(sequence(5))) > 1, "every token is a new draw"


def test_without_a_seed_two_requests_differ() -> None:
    logits = torch.zeros(2, 1_000_000)
    unseeded = [Request(name, [0], SamplingParams(max_tokens=1)) for name in "ab"]
    first, second = sample(logits, unseeded)
    assert first != second


KINDS: list[dict[str, object]] = [
    {"temperature": 0},
    {},
    {"top_p": 0.9},
    {"top_k": 5, "temperature": 0.7},
    {"top_p": 0.9999, "temperature": 50.0},
]


@pytest.mark.parametrize("seed", range(5))
def test_a_draw_does_not_depend_on_who_shares_the_batch(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(KINDS), 5_000, generator=generator) * 3
    params = [SamplingParams(max_tokens=1, seed=seed, **kind) for kind in KINDS]  # type: ignore[arg-type]
    together = sample(logits, [Request("a", [0], each) for each in params])
    alone = [
        sample(logits[row : row + 1], [Request("a", [0], each)])[0]
        for row, each in enumerate(params)
    ]
    assert together == alone


def test_a_nucleus_wider_than_the_first_candidates_is_drawn_whole() -> None:
    logits = torch.zeros(3_000, 5_000)
    logits[:, 4_000:] = -20.0
    drawn = set(sample(logits, requests(3_000, top_p=0.999)))
    assert max(drawn) < 4_000, "what the nucleus leaves out never comes"
    assert len(drawn) > 1_500, "tokens past the first thousand come too"


def test_no_request_to_sample_gives_no_token() -> None:
    assert Sampler().sample(StepResult(torch.empty(0, 5)), Batch(())).wait() == Sampled()


def test_a_greedy_request_seeds_no_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.Random", None)
    assert sample(LOGITS.expand(3, -1), requests(3, temperature=0)) == [1, 1, 1]
