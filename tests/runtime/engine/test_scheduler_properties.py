"""Whatever comes in whatever order, with pools far too small: nothing is lost, everyone ends."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from fake_runner import FakeRunner, FakeSampler, answer_alone
from forebay_runtime.blocks import BlockPool
from forebay_runtime.engine import Engine, Warmth
from forebay_runtime.request import Output, Request, SamplingParams
from forebay_runtime.scheduler import Limits, Scheduler

BLOCK_SIZE = 4
MAX_MODEL_LEN = 48


@dataclass(frozen=True)
class Arrival:
    """A request that comes before some step, and perhaps is aborted before a later one."""

    at_step: int
    num_prompt_tokens: int
    max_tokens: int
    abort_at_step: int | None


arrivals = st.lists(
    st.builds(
        Arrival,
        at_step=st.integers(0, 20),
        num_prompt_tokens=st.integers(1, MAX_MODEL_LEN - 1),
        max_tokens=st.integers(1, 24),
        abort_at_step=st.none() | st.integers(0, 40),
    ),
    max_size=10,
)
limits = st.builds(
    lambda num_seqs, extra_tokens: Limits(num_seqs, num_seqs + extra_tokens, MAX_MODEL_LEN),
    num_seqs=st.integers(1, 5),
    extra_tokens=st.integers(0, 20),
)


class Play:
    """One run of an engine with a fake model, watched after every step."""

    def __init__(self, num_blocks: int, limits: Limits, arrivals: list[Arrival]) -> None:
        self.runner = FakeRunner(BLOCK_SIZE)
        self.scheduler = Scheduler(BlockPool(num_blocks, BLOCK_SIZE), limits, frozenset())
        self.engine = Engine(self.scheduler, self.runner, FakeSampler(), Warmth, vocab_size=97)
        self.arrivals = dict(enumerate(sorted(arrivals, key=lambda arrival: arrival.at_step)))
        self.outputs: dict[str, list[Output]] = {str(index): [] for index in self.arrivals}

    def prompt(self, index: int) -> list[int]:
        return [(index * 7 + place) % 97 for place in range(self.arrivals[index].num_prompt_tokens)]

    def run(self) -> None:
        step = 0
        while self.engine.has_work or step <= 40:
            self._arrive(step)
            before = len(self.runner.batches)
            for output in self.engine.step():
                self.outputs[output.request_id].append(output)
            self._check_step(self.runner.batches[before:])
            step += 1
            assert step < 5_000, "some request never ends"

    def _arrive(self, step: int) -> None:
        for index, arrival in self.arrivals.items():
            if arrival.abort_at_step == step:
                self.engine.abort(str(index))
            if arrival.at_step == step:
                sampling = SamplingParams(max_tokens=arrival.max_tokens, temperature=0)
                self.engine.add(Request(str(index), self.prompt(index), sampling))

    def _check_step(self, batches: list) -> None:  # type: ignore[type-arg]
        self.scheduler.check_integrity()
        order = [int(r.request_id) for r in (*self.scheduler.running, *self.scheduler.waiting)]
        assert order == sorted(order), "requests run and wait in order of arrival"
        for batch in batches:
            assert batch.num_tokens <= self.scheduler.limits.max_num_batched_tokens
            assert len(batch.chunks) <= self.scheduler.limits.max_num_seqs
            picked = {chunk.request.request_id for chunk in batch.chunks}
            missed = {r.request_id for r in self.scheduler.running} - picked
            assert not missed, "every running request gets at least a token every step"


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 14), limits, arrivals)
def test_every_request_ends_once_with_the_tokens_it_gets_alone(
    num_blocks: int, limits: Limits, arrivals: list[Arrival]
) -> None:
    play = Play(num_blocks, limits, arrivals)
    play.run()
    assert play.scheduler.pool.num_free_blocks == num_blocks
    for index, arrival in play.arrivals.items():
        outputs = play.outputs[str(index)]
        assert [o.finish_reason is not None for o in outputs].count(True) == 1
        last = outputs[-1]
        assert last.finish_reason is not None, "nothing follows the end"
        token_ids = [token_id for output in outputs for token_id in output.token_ids]
        num_most = min(arrival.max_tokens, MAX_MODEL_LEN - arrival.num_prompt_tokens)
        assert token_ids == answer_alone(play.prompt(index), num_most)[: len(token_ids)]
        if last.finish_reason == "length":
            assert len(token_ids) == num_most
        if last.finish_reason == "error":
            num_needed = arrival.num_prompt_tokens + num_most - 1
            assert num_needed > num_blocks * BLOCK_SIZE, "only what outgrows the cache may fail"
        if last.finish_reason == "abort":
            assert arrival.abort_at_step is not None


@settings(max_examples=50, deadline=None)
@given(limits, arrivals)
def test_in_a_large_pool_nothing_is_computed_twice(limits: Limits, arrivals: list[Arrival]) -> None:
    play = Play(200, limits, arrivals)
    play.run()
    computed = [
        (chunk.request.request_id, position)
        for batch in play.runner.batches
        for chunk in batch.chunks
        for position in range(chunk.start, chunk.end)
    ]
    assert len(computed) == len(set(computed))
