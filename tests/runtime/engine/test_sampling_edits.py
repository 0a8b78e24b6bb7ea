"""What a request's own wishes do to its scores, and to nobody else's."""

import random
from typing import Any

import pytest
import torch

from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.sampling.sampler import Sampler
from forebay_runtime.scheduling.batch import Batch, Chunk
from forebay_runtime.step_result import Sampled, StepResult

LOGITS = torch.tensor([1.0, 4.0, 3.0, 2.0, -2.0, 0.0])
"""In falling order: 1, 2, 3, 0, 5, 4."""
END = frozenset({1})


class Allows:
    """A constraint that allows some tokens."""

    def __init__(self, *token_ids: int, is_complete: bool = False, error: str | None = None):
        self._bits = sum(1 << token_id for token_id in token_ids).to_bytes(1, "little")
        self.is_complete = is_complete
        self.error = error

    def allowed(self) -> bytes:
        return self._bits

    def accept(self, token_id: int) -> None: ...


def request(output: tuple[int, ...] = (), prompt: tuple[int, ...] = (0,), **asked: Any) -> Request:
    constraint = asked.pop("constraint", None)
    sampling = SamplingParams(max_tokens=9, **{"temperature": 0, **asked})
    return Request(
        str(random.random()),
        list(prompt),
        sampling,
        constraint=constraint,
        output_token_ids=list(output),
    )


def sample(*requests: Request, logits: torch.Tensor | None = None) -> Sampled:
    if logits is None:
        logits = LOGITS.expand(len(requests), -1)
    batch = Batch(tuple(Chunk.of(each, 0, each.num_tokens) for each in requests))
    return Sampler(END).sample(StepResult(logits), batch).wait()


@pytest.mark.parametrize(
    ("asked", "token_id"),
    [
        pytest.param({}, 1, id="nothing"),
        pytest.param({"logit_bias": ((4, 9.0),)}, 4, id="a-bias-lifts"),
        pytest.param({"logit_bias": ((1, -100.0), (2, -1.5))}, 3, id="biases-lower"),
        pytest.param({"logit_bias": ((99, 100.0),)}, 1, id="a-bias-beyond-the-vocabulary"),
        pytest.param({"allowed_token_ids": frozenset({0, 5})}, 0, id="only-allowed"),
        pytest.param({"allowed_token_ids": frozenset({5, 99})}, 5, id="allowed-beyond-vocabulary"),
        pytest.param({"bad_words": ((1,), (2,))}, 3, id="bad-words-of-one-token"),
        pytest.param({"bad_words": ((2, 1),)}, 1, id="a-bad-word-not-begun"),
        pytest.param({"bad_words": ((2, 1),), "output": (2,)}, 2, id="a-bad-word-begun"),
        pytest.param({"bad_words": ((2, 1),), "prompt": (2,)}, 1, id="begun-in-the-prompt"),
        pytest.param({"bad_words": ((5, 2, 1),), "output": (5, 2)}, 2, id="a-longer-bad-word"),
        pytest.param({"bad_words": ((5, 2, 1),), "output": (2,)}, 1, id="longer-than-the-output"),
        pytest.param({"min_tokens": 1}, 2, id="too-early-to-end"),
        pytest.param({"min_tokens": 1, "output": (3,)}, 1, id="long-enough-to-end"),
        pytest.param(
            {"min_tokens": 1, "stop_token_ids": frozenset({2})}, 3, id="too-early-to-stop"
        ),
        pytest.param({"presence_penalty": 2.0, "output": (1,)}, 2, id="present"),
        pytest.param({"presence_penalty": 2.0, "prompt": (1,)}, 1, id="present-in-the-prompt-only"),
        pytest.param({"presence_penalty": 0.9, "output": (1, 1, 1)}, 1, id="present-counts-once"),
        pytest.param({"frequency_penalty": 0.9, "output": (1, 1)}, 2, id="frequent"),
        pytest.param({"frequency_penalty": 0.9, "prompt": (1, 1)}, 1, id="frequent-in-the-prompt"),
        pytest.param({"repetition_penalty": 1.5, "prompt": (1,)}, 2, id="repeats-the-prompt"),
        pytest.param({"repetition_penalty": 1.5, "output": (1,)}, 2, id="repeats-the-output"),
        pytest.param({"repetition_penalty": 1.3, "output": (1,)}, 1, id="repeats-but-is-best"),
        pytest.param({"constraint": Allows(0, 4)}, 0, id="constrained"),
        pytest.param(
            {"constraint": Allows(1, is_complete=True), "min_tokens": 9},
            1,
            id="what-is-complete-ends-before-min-tokens",
        ),
        pytest.param(
            {"temperature": 1, "allowed_token_ids": frozenset({4})}, 4, id="drawn-from-what-is-left"
        ),
        pytest.param(
            {"temperature": 9, "top_k": 3, "constraint": Allows(4)}, 4, id="top-k-of-what-is-left"
        ),
        pytest.param({"temperature": 9, "min_p": 0.95}, 1, id="min-p"),
    ],
)
def test_a_wish_decides_the_token(asked: dict[str, Any], token_id: int) -> None:
    assert sample(request(**asked)).token_ids == (token_id,)


def test_a_wish_changes_no_other_row_and_not_the_logits() -> None:
    logits = LOGITS.repeat(3, 1)
    wishes = request(), request(logit_bias=((4, 99.0),)), request()
    assert sample(*wishes, logits=logits).token_ids == (1, 4, 1)
    assert torch.equal(logits, LOGITS.repeat(3, 1))


@pytest.mark.parametrize("seed", range(4))
def test_counts_that_grow_say_what_counting_anew_says(seed: int) -> None:
    chance = random.Random(seed)
    prompt = [chance.randrange(200) for _ in range(150)]
    penalties = {"repetition_penalty": 1.3, "frequency_penalty": 0.2, "presence_penalty": -0.3}
    asked = request(prompt=tuple(prompt), **penalties)
    sampler = Sampler()
    for step in range(120):
        logits = torch.randn(200, generator=torch.Generator().manual_seed(1000 * seed + step))
        batch = Batch((Chunk.of(asked, 0, asked.num_tokens),))
        [token_id] = sampler.sample(StepResult(logits[None]), batch).wait().token_ids
        assert token_id == int(penalised(logits, prompt, asked.output_token_ids).argmax())
        asked.output_token_ids.append(token_id)


def penalised(logits: torch.Tensor, prompt: list[int], output: list[int]) -> torch.Tensor:
    """The penalties of the test above by their definition, token by token."""
    scores = logits.clone()
    for token_id in {*prompt, *output}:
        score = scores[token_id]
        scores[token_id] = score / 1.3 if score > 0 else score * 1.3
    for token_id in set(output):
        scores[token_id] -= 0.2 * output.count(token_id) - 0.3
    return scores


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        pytest.param(
            {"allowed_token_ids": frozenset({1}), "min_tokens": 1}, "No token is left", id="edits"
        ),
        pytest.param({"constraint": Allows()}, "No token is left", id="constraint-without-words"),
        pytest.param(
            {"constraint": Allows(error="the grammar allows no token here")},
            "the grammar allows no token here",
            id="constraint-with-words",
        ),
        pytest.param(
            {"temperature": 1, "top_p": 0.5, "bad_words": tuple((n,) for n in range(6))},
            "No token is left",
            id="drawn",
        ),
    ],
)
def test_nothing_left_ends_that_request_alone(asked: dict[str, Any], error: str) -> None:
    broken, other = request(**asked), request(temperature=0.1, logit_bias=((3, 50.0),))
    sampled = sample(broken, other)
    assert list(sampled.errors) == [broken.request_id]
    assert error in sampled.errors[broken.request_id]
    assert sampled.token_ids[1] == 3


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("asked", [{}, {"temperature": 1}, {"temperature": 1, "top_p": 0.9}])
def test_scores_that_are_no_numbers_end_that_request_alone(
    asked: dict[str, Any], value: float
) -> None:
    broken, other = request(**asked, num_logprobs=2), request(**asked, logit_bias=((2, 60.0),))
    logits = LOGITS.repeat(2, 1)
    logits[0] = value
    sampled = sample(broken, other, logits=logits)
    assert list(sampled.errors) == [broken.request_id]
    assert sampled.token_ids[1] == 2
    assert not sampled.logprobs


def test_logprobs_are_the_models_own_before_wishes_and_temperature() -> None:
    asked = request(temperature=2, allowed_token_ids=frozenset({3}), num_logprobs=2)
    [scores] = sample(asked).logprobs.values()
    expected = LOGITS.log_softmax(-1).tolist()
    assert (scores.token_id, scores.rank) == (3, 3)
    assert scores.logprob == pytest.approx(expected[3])
    assert scores.top == ((1, pytest.approx(expected[1])), (2, pytest.approx(expected[2])))


@pytest.mark.parametrize(("num_logprobs", "num_top"), [(0, 0), (1, 1), (6, 6), (50, 6)])
def test_so_many_of_the_best_are_told(num_logprobs: int, num_top: int) -> None:
    [scores] = sample(request(num_logprobs=num_logprobs)).logprobs.values()
    assert [token_id for token_id, _ in scores.top] == [1, 2, 3, 0, 5, 4][:num_top]


def test_only_who_asked_gets_logprobs() -> None:
    asked, other = request(num_logprobs=0), request()
    assert list(sample(asked, other).logprobs) == [asked.request_id]


@pytest.mark.parametrize("allowed", [{0, 1, 2, 3, 4, 5}, {0}, {2}, {4}], ids=str)
def test_among_equals_the_token_itself_comes_first(allowed: set[int]) -> None:
    equal = torch.tensor([[1.0, 1.0, 1.0, 1.0, 1.0, 0.0]])
    asked = request(allowed_token_ids=frozenset(allowed), num_logprobs=3)
    [scores] = sample(asked, logits=equal).logprobs.values()
    assert scores.rank == 1
    assert scores.top[0] == (scores.token_id, scores.logprob)
    assert len({token_id for token_id, _ in scores.top}) == 3
