"""Whatever comes in whatever order, with pools far too small: nothing is lost, everyone ends."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_runner import FakeProposer, FakeRunner, FakeSampler, answer_alone
from forebay_runtime.engine import Engine, Warmth, Widths
from forebay_runtime.request import Output, Request, SamplingParams
from forebay_runtime.scheduling.admission import Rules
from forebay_runtime.scheduling.batch import Batch, Limits
from forebay_runtime.scheduling.blocks import BlockPool
from forebay_runtime.scheduling.scheduler import Scheduler
from forebay_runtime.scheduling.speculation import Speculation, SpeculationRules

MAX_MODEL_LEN = 40
LAST_EVENT = 40
MOST_STEPS = 5_000
NUM_SHARED_TOKENS = 30


@dataclass(frozen=True)
class Arrival:
    """A request that comes before some step, and perhaps is aborted before a later one.

    Its prompt begins with up to num_shared tokens that others of its family have too.
    """

    at_step: int
    num_prompt_tokens: int
    max_tokens: int
    abort_at_step: int | None = None
    family: int = 0
    num_shared: int = 0
    cache_salt: str = ""
    priority: int = 0
    num_prompt_logprobs: int | None = None
    seed: int | None = None
    stop_token_ids: frozenset[int] = frozenset()
    needs_known: bool = False

    def request(self, index: int) -> Request:
        """Itself, as the index-th of a play."""
        shared = [self.family + place % 2 for place in range(NUM_SHARED_TOKENS)][: self.num_shared]
        prompt = shared + [(index * 7 + place) % 97 for place in range(MAX_MODEL_LEN)]
        sampling = SamplingParams(
            self.max_tokens,
            temperature=0 if self.seed is None else 1,
            seed=self.seed,
            num_prompt_logprobs=self.num_prompt_logprobs,
            stop_token_ids=self.stop_token_ids,
            presence_penalty=0.5 if self.needs_known else 0,
        )
        return Request(
            str(index),
            prompt[: self.num_prompt_tokens],
            sampling,
            priority=self.priority,
            cache_salt=self.cache_salt,
        )

    @property
    def num_output_tokens(self) -> int:
        """Tokens that it gets if nothing ends it early."""
        return min(self.max_tokens, MAX_MODEL_LEN - self.num_prompt_tokens)

    @property
    def num_tokens_to_compute(self) -> int:
        """Its last token is never computed, if it gets any."""
        return self.num_prompt_tokens + max(0, self.num_output_tokens - 1)


@dataclass(frozen=True)
class World:
    """What an engine has to make do with."""

    num_blocks: int
    block_size: int
    limits: Limits
    rules: Rules = field(default_factory=Rules)
    is_async: bool = False
    is_late: bool = False
    wrong_at: int = 2
    """Of proposed tokens, every so many-th is a wrong guess."""

    def speculation(self) -> Speculation | None:
        """What proposes tokens, if the limits leave room for any."""
        number = self.limits.max_num_proposed_tokens
        if not number:
            return None
        proposer = FakeProposer(self.rules.window, self.wrong_at)
        rules = SpeculationRules(min(number, 4), counts_on_host=True, adapts=False)
        return Speculation(proposer, rules, self.limits)

    def outgrows(self, arrival: Arrival, num_tokens: int) -> bool:
        """Can the whole pool, within so many tokens, not hold what the next token attends to?"""
        size, window = self.block_size, self.rules.window or MAX_MODEL_LEN
        most = min(max(num_tokens, arrival.num_prompt_tokens), arrival.num_tokens_to_compute)
        return any(
            -(-number // size) - max(0, number - window) // size > self.num_blocks
            for number in range(1, most + 1)
        )


arrivals = st.lists(
    st.builds(
        Arrival,
        at_step=st.integers(0, 20),
        num_prompt_tokens=st.integers(1, MAX_MODEL_LEN - 1),
        max_tokens=st.integers(0, 24),
        abort_at_step=st.none() | st.integers(0, LAST_EVENT),
        family=st.integers(0, 1),
        num_shared=st.integers(0, NUM_SHARED_TOKENS),
        cache_salt=st.sampled_from(["", "", "", "salt"]),
        priority=st.integers(0, 2),
        num_prompt_logprobs=st.sampled_from([None, None, None, 0]),
        seed=st.sampled_from([None, None, 1]),
        stop_token_ids=st.just(frozenset()) | st.frozensets(st.integers(0, 96), max_size=12),
        needs_known=st.sampled_from([False, False, False, True]),
    ),
    max_size=12,
)
limits = st.builds(
    lambda num_seqs, extra_tokens, proposed: Limits(
        num_seqs, num_seqs + extra_tokens, MAX_MODEL_LEN, proposed
    ),
    num_seqs=st.integers(1, 5),
    extra_tokens=st.integers(0, 20),
    proposed=st.sampled_from([0, 1, 3, 8]),
)
worlds = st.builds(
    World,
    num_blocks=st.integers(1, 14),
    block_size=st.sampled_from([1, 2, 4, 8]),
    limits=limits,
    rules=st.builds(
        Rules,
        policy=st.sampled_from(["fcfs", "priority"]),
        has_prefix_cache=st.booleans(),
        long_prompt_tokens=st.none() | st.integers(1, 30),
        max_long_prompts=st.integers(1, 2),
        window=st.none() | st.integers(2, 20),
    ),
    is_async=st.booleans(),
    is_late=st.booleans(),
    wrong_at=st.integers(1, 5),
)


class Play:
    """One run of an engine with a fake model, watched after every step."""

    def __init__(self, world: World, arrivals: list[Arrival]) -> None:
        window = world.rules.window
        self.world = world
        self.runner = FakeRunner(world.block_size, window, world.is_late)
        pool = BlockPool(world.num_blocks, world.block_size)
        self.scheduler = Scheduler(
            pool, world.limits, frozenset(), world.rules, speculation=world.speculation()
        )
        self.engine = Engine(
            self.scheduler,
            self.runner,
            FakeSampler(),
            Warmth,
            Widths(97, 8),
            is_async=world.is_async,
        )
        self.flying: set[str] = set()
        self.arrivals = dict(enumerate(arrivals))
        self.outputs: dict[str, list[Output]] = {str(index): [] for index in self.arrivals}

    def run(self) -> None:
        step = 0
        while self.engine.has_work or step <= LAST_EVENT:
            self._arrive(step)
            had_work, num_batches = self.engine.has_work, len(self.runner.batches)
            outputs = self.engine.step()
            batches = self.runner.batches[num_batches:]
            has_moved = bool(batches or outputs or self.flying)
            assert has_moved == had_work, "a step launches, lands or tells something"
            for output in outputs:
                self.outputs[output.request_id].append(output)
            self._check_step(batches)
            step += 1
            assert step < MOST_STEPS, "some request never ends"

    def _arrive(self, step: int) -> None:
        for index, arrival in self.arrivals.items():
            if arrival.abort_at_step == step:
                self.engine.abort(str(index))
            if arrival.at_step == step:
                self.engine.add(arrival.request(index))

    def _check_step(self, batches: list[Batch]) -> None:
        self.scheduler.check_integrity()
        assert all(request.num_times_passed <= 16 for request in self.scheduler.waiting)
        picked: set[str] = set()
        for batch in batches:
            assert batch.num_tokens <= self.scheduler.limits.max_num_batched_tokens
            assert len(batch.chunks) <= self.scheduler.limits.max_num_seqs
            for chunk in batch.chunks:
                arrival = self.arrivals[int(chunk.request.request_id)]
                assert chunk.end <= arrival.num_tokens_to_compute, "nothing is computed past an end"
            picked = {chunk.request.request_id for chunk in batch.chunks}
            missed = {request.request_id for request in self.scheduler.running} - picked
            assert missed <= self.flying, "everyone who runs gets a token, or has some in flight"
        self.flying = picked if self.world.is_async else set()

    def check_answer(self, index: int) -> None:
        """The index-th request ended once, rightly, with the tokens it gets alone."""
        arrival, outputs = self.arrivals[index], self.outputs[str(index)]
        assert [o.finish_reason is not None for o in outputs].count(True) == 1
        last = outputs[-1]
        assert last.finish_reason is not None, "nothing follows the end"
        token_ids = [token_id for output in outputs for token_id in output.token_ids]
        prompt = arrival.request(index).prompt_token_ids
        expected = answer_alone(
            prompt, arrival.num_output_tokens, self.world.rules.window, arrival.seed
        )
        assert token_ids == expected[: len(token_ids)]
        assert not arrival.stop_token_ids & set(token_ids[:-1]), "nothing follows a stop token"
        if last.finish_reason == "length":
            assert len(token_ids) == len(expected)
        if last.finish_reason == "stop":
            assert token_ids[-1] in arrival.stop_token_ids
        if last.finish_reason == "abort":
            assert arrival.abort_at_step is not None
        else:
            is_error = last.finish_reason == "error"
            # Who waits must have room for a token that nobody knows yet.
            num_tokens = len(prompt) + len(token_ids) + (1 if is_error else -1)
            assert is_error == self.world.outgrows(arrival, num_tokens)
        num_cached = outputs[0].num_cached_tokens or 0
        assert num_cached < len(prompt), "one token at least is computed"
        assert not (num_cached and arrival.num_prompt_logprobs is not None)


def check_play(world: World, arrivals: list[Arrival]) -> Play:
    play = Play(world, arrivals)
    play.run()
    load = play.engine.load_now()
    assert (load.num_running, load.num_waiting, load.kv_cache_usage) == (0, 0, 0.0)
    assert load.free_kv_tokens == world.num_blocks * world.block_size
    for index in play.arrivals:
        play.check_answer(index)
    return play


@settings(max_examples=1_500, deadline=None)
@given(worlds, arrivals)
def test_every_request_ends_once_with_the_tokens_it_gets_alone(
    world: World, arrivals: list[Arrival]
) -> None:
    check_play(world, arrivals)


@pytest.mark.long
@settings(max_examples=30_000, deadline=None)
@given(worlds, arrivals)
def test_every_request_ends_once_in_very_many_histories(
    world: World, arrivals: list[Arrival]
) -> None:
    check_play(world, arrivals)


@settings(max_examples=150, deadline=None)
@given(limits, arrivals)
def test_in_a_large_pool_nothing_is_computed_twice(limits: Limits, arrivals: list[Arrival]) -> None:
    play = check_play(World(400, 4, replace(limits, max_num_proposed_tokens=0)), arrivals)
    computed = [
        (chunk.request.request_id, position)
        for batch in play.runner.batches
        for chunk in batch.chunks
        for position in range(chunk.start, chunk.end)
    ]
    assert len(computed) == len(set(computed))
