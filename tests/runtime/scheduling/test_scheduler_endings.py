"""How requests end, and what is told once and at the right time."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from forebay_runtime.request import Output, TokenLogprobs
from scheduler_play import EOS, advance, build_scheduler, finish, request, told


@dataclass
class Script:
    """A constraint that is complete, or breaks, after so many tokens."""

    complete_after: int = 99
    error_after: int = 99
    taken: list[int] = field(default_factory=list)

    def allowed(self) -> bytes:
        return b"\xff"

    def accept(self, token_id: int) -> None:
        self.taken.append(token_id)

    @property
    def is_complete(self) -> bool:
        return len(self.taken) >= self.complete_after

    @property
    def error(self) -> str | None:
        return "Nothing can follow" if len(self.taken) >= self.error_after else None


def score(token_id: int) -> TokenLogprobs:
    return TokenLogprobs(token_id, logprob=-1.0, rank=1)


@pytest.mark.parametrize(
    ("sampling", "token_id", "reason"),
    [
        pytest.param({}, EOS, "stop", id="end-of-sequence"),
        pytest.param({"ignore_eos": True}, EOS, None, id="end-of-sequence-ignored"),
        pytest.param({"stop_token_ids": frozenset({3})}, 3, "stop", id="stop-token"),
        pytest.param(
            {"stop_token_ids": frozenset({EOS}), "ignore_eos": True}, EOS, "stop", id="asked-for"
        ),
        pytest.param({"min_tokens": 2}, EOS, None, id="end-of-sequence-too-early"),
        pytest.param(
            {"min_tokens": 2, "stop_token_ids": frozenset({3})}, 3, None, id="stop-token-too-early"
        ),
        pytest.param({"min_tokens": 1}, EOS, "stop", id="end-of-sequence-just-late-enough"),
        pytest.param({"max_tokens": 1}, 1, "length", id="max-tokens"),
        pytest.param({"max_tokens": 1}, EOS, "stop", id="end-of-sequence-as-last-token"),
        pytest.param({}, 1, None, id="goes-on"),
    ],
)
def test_a_token_ends_a_request(
    sampling: dict[str, Any], token_id: int, reason: str | None
) -> None:
    scheduler = build_scheduler()
    scheduler.add(request("a", 3, **sampling))
    (output,) = advance(scheduler, token_id)
    assert told([output]) == [("a", (token_id,), reason)]
    assert output.stop_token_id == (token_id if reason == "stop" else None)
    assert scheduler.has_work == (reason is None)


def test_max_model_len_ends_a_request() -> None:
    scheduler = build_scheduler(max_num_batched_tokens=64)
    scheduler.add(request("a", 63))
    assert told(advance(scheduler)) == [("a", (1,), "length")]


@pytest.mark.parametrize(
    ("constraint", "ends"),
    [
        pytest.param(Script(), [None, None, "length"], id="goes-on"),
        pytest.param(Script(complete_after=2), [None, "stop"], id="complete"),
        pytest.param(Script(error_after=2), [None, "error"], id="broken"),
    ],
)
def test_a_constraint_hears_every_token_and_ends_its_request(
    constraint: Script, ends: list[str | None]
) -> None:
    scheduler = build_scheduler()
    scheduler.add(request("a", 3, max_tokens=3, constraint=constraint))
    scheduler.add(request("other", 3, max_tokens=3))
    outputs = finish(scheduler)
    own = [o for o in outputs if o.request_id == "a"]
    assert [o.finish_reason for o in own] == ends
    assert own[-1].error == ("Nothing can follow" if ends[-1] == "error" else None)
    assert constraint.taken == [1] * len(ends)
    assert outputs[-1].request_id == "other" or ends[-1] == "length", "the other is untouched"


def test_an_end_token_ends_a_constrained_request_well_even_if_nothing_could_follow_it() -> None:
    scheduler = build_scheduler()
    scheduler.add(request("a", 3, constraint=Script(error_after=1)))
    assert told(advance(scheduler, EOS)) == [("a", (EOS,), "stop")]


def test_an_error_of_the_step_ends_one_request_and_no_other() -> None:
    scheduler = build_scheduler()
    for name in "ab":
        scheduler.add(request(name, 3))
    outputs = advance(scheduler, errors={"a": "No token is left"})
    assert told(outputs) == [("a", (), "error"), ("b", (1,), None)]
    assert outputs[0].error == "No token is left"


def test_a_request_for_no_tokens_ends_with_its_prompt() -> None:
    scheduler = build_scheduler(max_num_batched_tokens=16)
    scheduler.add(request("a", 20, max_tokens=0))
    assert [told(advance(scheduler)) for _ in range(2)] == [[], [("a", (), "length")]]


def test_an_embedding_comes_with_the_last_of_the_prompt() -> None:
    scheduler = build_scheduler(max_num_batched_tokens=16)
    scheduler.add(request("a", 20, pooling="mean"))
    assert advance(scheduler) == []
    (output,) = advance(scheduler, embeddings={"a": (0.6, 0.8)})
    assert (output.finish_reason, output.embedding, output.token_ids) == ("stop", (0.6, 0.8), ())


def test_logprobs_go_with_their_token() -> None:
    scheduler = build_scheduler()
    scheduler.add(request("a", 3, num_logprobs=0))
    (output,) = advance(scheduler, logprobs={"a": score(1)})
    assert output.logprobs == (score(1),)


@pytest.mark.parametrize("max_tokens", [0, 2], ids=["prompt-alone", "and-an-answer"])
def test_prompt_logprobs_come_once_and_whole_with_the_first_output(max_tokens: int) -> None:
    scheduler = build_scheduler(max_num_batched_tokens=4)
    scheduler.add(request("a", range(10, 20), max_tokens=max_tokens, num_prompt_logprobs=0))
    outputs = []
    for start in (0, 4, 8):
        scores = tuple(score(10 + place) for place in range(start + 1, min(start + 5, 10)))
        outputs += advance(scheduler, prompt_logprobs={"a": scores})
    outputs += finish(scheduler)
    assert outputs[0].prompt_logprobs == (None, *(score(token_id) for token_id in range(11, 20)))
    assert [o.prompt_logprobs for o in outputs[1:]] == [None] * (len(outputs) - 1)


def test_prompt_logprobs_of_one_token_are_none_for_it() -> None:
    scheduler = build_scheduler()
    scheduler.add(request("a", 1, max_tokens=0, num_prompt_logprobs=0))
    assert [o.prompt_logprobs for o in advance(scheduler)] == [(None,)]


def test_a_preempted_request_loses_none_of_its_prompt_logprobs_and_gets_none_twice() -> None:
    scheduler = build_scheduler(max_num_seqs=1, max_num_batched_tokens=4, policy="priority")
    scheduler.add(request("a", range(10, 20), priority=1, num_prompt_logprobs=0))
    advance(scheduler, prompt_logprobs={"a": tuple(score(10 + place) for place in range(1, 5))})
    scheduler.add(request("urgent", 1, max_tokens=1))
    advance(scheduler)
    outputs: list[Output] = []
    for start in (0, 4, 8):
        scores = tuple(score(10 + place) for place in range(start + 1, min(start + 5, 10)))
        outputs += advance(scheduler, prompt_logprobs={"a": scores})
    assert outputs[0].prompt_logprobs == (None, *(score(token_id) for token_id in range(11, 20)))


def test_what_is_told_once_comes_with_the_first_output_alone() -> None:
    scheduler = build_scheduler()
    scheduler.add(request("a", 3))
    first, second = advance(scheduler) + advance(scheduler)
    assert (first.scheduled_at, first.num_cached_tokens) == (5.0, 0)
    assert (second.scheduled_at, second.num_cached_tokens) == (None, None)
