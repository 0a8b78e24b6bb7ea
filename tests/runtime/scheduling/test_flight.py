"""A step in flight: who goes on before it lands, and what becomes of what it gives too late."""

from typing import Any

import pytest

from fake_runner import FakeRunner, FakeSampler, answer_alone
from forebay_runtime.engine import Engine, Warmth, Widths
from forebay_runtime.flights import Flights
from forebay_runtime.request import Request
from forebay_runtime.scheduling.batch import Batch
from forebay_runtime.scheduling.flight import num_ready_tokens
from forebay_runtime.scheduling.scheduler import Scheduler
from forebay_runtime.step_result import Sampled
from scheduler_play import EOS, build_scheduler, picked, request, told

MAX_MODEL_LEN = 20
NAMES = ("a", "bb")


class AllowsAll:
    """A constraint in name."""

    is_complete = False
    error = None

    def allowed(self) -> bytes:
        return b"\xff" * 16

    def accept(self, token_id: int) -> None:
        pass


@pytest.mark.parametrize(
    ("fields", "num_computed", "num_flying", "num_pending", "num_ready"),
    [
        pytest.param({}, 0, 0, 0, 10, id="a-prompt"),
        pytest.param({}, 0, 4, 0, 6, id="the-rest-of-a-prompt-whose-beginning-flies"),
        pytest.param({"max_tokens": 0}, 0, 10, 0, 0, id="a-prompt-that-flies-and-samples-nothing"),
        pytest.param({}, 0, 10, 1, 1, id="a-pending-token"),
        pytest.param({"temperature": 0, "top_k": 3}, 0, 10, 1, 1, id="however-it-is-drawn"),
        pytest.param({"min_tokens": 5}, 0, 10, 1, 1, id="a-count-of-tokens-needs-no-ids"),
        pytest.param({"stop_token_ids": frozenset({1})}, 0, 10, 1, 1, id="it-may-be-a-stop-token"),
        pytest.param({"bad_words": ((1,),)}, 0, 10, 1, 1, id="words-of-one-token-are-never-right"),
        pytest.param({"num_logprobs": 3}, 0, 10, 1, 1, id="logprobs-look-at-the-scores"),
        pytest.param({"max_tokens": 1}, 0, 10, 1, 0, id="the-last-by-max-tokens"),
        pytest.param({"max_tokens": 2}, 0, 10, 1, 1, id="the-last-but-one"),
        pytest.param({"prompt": 19}, 0, 19, 1, 0, id="the-last-by-the-models-length"),
        pytest.param({"bad_words": ((1, 2),)}, 0, 10, 1, 0, id="words-of-two-tokens"),
        pytest.param({"repetition_penalty": 1.1}, 0, 10, 1, 0, id="repetition"),
        pytest.param({"presence_penalty": 0.5}, 0, 10, 1, 0, id="presence"),
        pytest.param({"frequency_penalty": -0.5}, 0, 10, 1, 0, id="frequency"),
        pytest.param({"constraint": AllowsAll()}, 0, 10, 1, 0, id="structure"),
        pytest.param({"constraint": AllowsAll()}, 0, 4, 0, 6, id="structure-while-it-is-read"),
        pytest.param({"constraint": AllowsAll()}, 0, 0, 0, 10, id="structure-once-all-is-known"),
        pytest.param({}, 0, 0, 1, 11, id="all-of-it-after-its-blocks-were-lost"),
    ],
)
def test_a_request_goes_on_unless_what_flies_must_be_known(
    fields: dict[str, Any], num_computed: int, num_flying: int, num_pending: int, num_ready: int
) -> None:
    asked = request("a", **{"prompt": 10, **fields})
    asked.num_computed_tokens, asked.num_flying_tokens = num_computed, num_flying
    asked.num_pending_tokens = num_pending
    assert num_ready_tokens(asked, MAX_MODEL_LEN) == num_ready


def launch_two(scheduler: Scheduler) -> tuple[Batch, Batch]:
    first = scheduler.schedule()
    second = scheduler.schedule()
    scheduler.check_integrity()
    return first, second


def settle(scheduler: Scheduler, batch: Batch, token_id: int = 1) -> list[Any]:
    outputs = scheduler.settle(batch, Sampled((token_id,) * len(batch.sampled)))
    scheduler.check_integrity()
    return told(outputs)


def test_the_next_step_takes_its_tokens_from_the_samples_of_the_one_in_flight() -> None:
    scheduler = build_scheduler()
    for name, length in (("b", 3), ("a", 2)):
        scheduler.add(request(name, length))
    first, second = launch_two(scheduler)
    assert picked(first) == [("a", 0, 2), ("b", 0, 3)]
    assert [(c.request.request_id, c.start, c.carried_row) for c in second.chunks] == [
        ("a", 2, 0),
        ("b", 3, 1),
    ]


def test_those_that_must_be_known_wait_while_others_go_on() -> None:
    scheduler = build_scheduler()
    scheduler.add(request("free", 2))
    scheduler.add(request("bound", 3, repetition_penalty=1.2))
    first, second = launch_two(scheduler)
    assert picked(second) == [("free", 2, 1)]
    settle(scheduler, first)
    third = scheduler.schedule()
    assert [(c.request.request_id, c.start, c.carried_row) for c in third.chunks] == [
        ("free", 3, 0),
        ("bound", 3, None),
    ]


def test_what_flies_for_a_request_that_has_ended_is_thrown_away() -> None:
    scheduler = build_scheduler()
    scheduler.add(request("a", 2))
    first, second = launch_two(scheduler)
    assert settle(scheduler, first, EOS) == [("a", (EOS,), "stop")]
    assert settle(scheduler, second) == []
    assert not scheduler.has_work


def test_what_flies_for_a_request_that_was_aborted_goes_to_no_other_of_its_name() -> None:
    scheduler = build_scheduler()
    scheduler.add(request("a", 2))
    first = scheduler.schedule()
    scheduler.abort("a")
    scheduler.add(request("a", 5))
    second = scheduler.schedule()
    assert settle(scheduler, first) == [("a", (), "abort")]
    assert settle(scheduler, second, 9) == [("a", (9,), None)]


def test_a_preempted_request_keeps_the_token_that_was_in_flight() -> None:
    scheduler = build_scheduler(num_blocks=4, policy="priority", max_num_seqs=1)
    scheduler.add(request("late", 2, priority=1, seed=3))
    first = scheduler.schedule()
    scheduler.add(request("urgent", 2))
    second = scheduler.schedule()
    assert (picked(second), scheduler.load_now().num_preemptions) == ([("urgent", 0, 2)], 1)
    assert settle(scheduler, first, 5) == [("late", (5,), None)]
    assert [(r.request_id, r.output_token_ids) for r in scheduler.waiting] == [("late", [5])]
    settle(scheduler, second, EOS)
    assert picked(scheduler.schedule()) == [("late", 0, 3)]


@pytest.mark.parametrize(
    ("token_id", "ends"),
    [pytest.param(EOS, "stop", id="it-was-the-last"), pytest.param(1, "error", id="it-was-not")],
)
def test_nobody_ends_for_want_of_room_for_a_token_that_may_be_the_last(
    token_id: int, ends: str
) -> None:
    scheduler = build_scheduler(num_blocks=1)
    scheduler.add(request("a", 3))
    first, second = launch_two(scheduler)
    assert picked(second) == [("a", 3, 1)]
    assert scheduler.settle(first, Sampled((1,)))
    third = scheduler.schedule()
    assert picked(third) == []
    settled = settle(scheduler, second, token_id)
    scheduler.schedule()
    assert (settled + settle(scheduler, third))[-1][2] == ends


def test_blocks_become_shared_only_when_what_fills_them_has_landed() -> None:
    scheduler = build_scheduler()
    prompt = list(range(100, 112))
    scheduler.add(request("a", prompt))
    first = scheduler.schedule()
    hit = scheduler._allocator.find_hit(request("b", prompt + [1]))
    assert hit.num_blocks == 0
    settle(scheduler, first)
    assert scheduler._allocator.find_hit(request("b", prompt + [1])).num_blocks == 3


class Clock:
    """Time that passes when somebody says so."""

    now = 0.0


class TimedRunner(FakeRunner):
    """A device whose steps take 10, and whose launches take the host 3; it counts its idle time."""

    def __init__(self, clock: Clock, launch_seconds: float = 3) -> None:
        super().__init__(4, is_late=True)
        self.clock, self.launch_seconds = clock, launch_seconds
        self.ends_at: list[float] = []
        self.idle: list[float] = []
        self.log: list[str] = []

    def run(self, batch: Batch) -> Any:
        self.clock.now += self.launch_seconds
        self.log.append(f"launch {len(self.ends_at)}")
        free_at = self.ends_at[-1] if self.ends_at else self.clock.now
        self.idle.append(max(0.0, self.clock.now - free_at))
        self.ends_at.append(max(self.clock.now, free_at) + 10)
        return super().run(batch)


class TimedSampler(FakeSampler):
    """Its samples come when the step that they are of has ended."""

    def __init__(self, runner: TimedRunner) -> None:
        self.runner = runner

    def sample(self, result: Any, batch: Batch) -> Any:
        return TimedDrawn(self.runner, len(self.runner.ends_at) - 1, super().sample(result, batch))


class TimedDrawn:
    """Lets the clock run to the end of its step."""

    def __init__(self, runner: TimedRunner, number: int, drawn: Any) -> None:
        self.runner, self.number, self.drawn = runner, number, drawn
        self.token_ids = drawn.token_ids

    def is_over(self) -> bool:
        return self.runner.clock.now >= self.runner.ends_at[self.number]

    def wait(self) -> Sampled:
        clock = self.runner.clock
        clock.now = max(clock.now, self.runner.ends_at[self.number])
        self.runner.log.append(f"wait {self.number}")
        sampled: Sampled = self.drawn.wait()
        return sampled


def play_timed(is_async: bool, requests: list[Request]) -> tuple[TimedRunner, dict[str, list[int]]]:
    runner = TimedRunner(Clock())
    engine = Engine(
        build_scheduler(), runner, TimedSampler(runner), Warmth, Widths(97, 8), is_async=is_async
    )
    for each in requests:
        engine.add(each)
    tokens: dict[str, list[int]] = {each.request_id: [] for each in requests}
    while engine.has_work:
        for output in engine.step():
            tokens[output.request_id] += output.token_ids
    return runner, tokens


@pytest.mark.parametrize(
    ("launch_seconds", "idle", "told"),
    [
        pytest.param(3, 0, 0, id="the-host-is-faster"),
        pytest.param(12, 3 * 2, 3 * 12, id="the-host-is-slower"),
    ],
)
def test_how_long_the_device_waited_for_the_host_is_told_at_most(
    launch_seconds: float, idle: float, told: float
) -> None:
    scheduler, runner = build_scheduler(), TimedRunner(Clock(), launch_seconds)
    flights = Flights(runner, TimedSampler(runner), True, clock=lambda: runner.clock.now)
    scheduler.add(request("a", [1], 4, temperature=0))
    while scheduler.has_work:
        batch = scheduler.schedule()
        if batch.chunks:
            flights.launch(batch)
        landed = flights.land(may_fly_on=bool(batch.chunks))
        scheduler.settle(landed.batch, landed.sampled)
    assert (sum(runner.idle), flights.gap_seconds) == (idle, told)


@pytest.mark.parametrize("is_async", [False, True], ids=["alone", "one-in-flight"])
def test_a_step_took_what_its_launch_and_the_wait_for_it_took(is_async: bool) -> None:
    scheduler, runner = build_scheduler(), TimedRunner(Clock())
    flights = Flights(runner, TimedSampler(runner), is_async, clock=lambda: runner.clock.now)
    scheduler.add(request("a", [1], 4, temperature=0))
    seconds = []
    while scheduler.has_work:
        batch = scheduler.schedule()
        if batch.chunks:
            flights.launch(batch)
        landed = flights.land(may_fly_on=bool(batch.chunks))
        seconds += [landed.seconds] if landed.batch.chunks else []
        scheduler.settle(landed.batch, landed.sampled)
    assert seconds == ([10, 10, 10, 13] if is_async else [13, 13, 13, 13])


def two_requests() -> list[Request]:
    return [request(name, [1, len(name)], 4, temperature=0, ignore_eos=True) for name in NAMES]


def test_a_step_is_launched_before_anyone_waits_for_the_one_before_it() -> None:
    runner, tokens = play_timed(True, two_requests())
    assert runner.log == [
        "launch 0",
        "launch 1",
        "wait 0",
        "launch 2",
        "wait 1",
        "launch 3",
        "wait 2",
        "wait 3",
    ]
    assert runner.idle == [0, 0, 0, 0]
    assert tokens == {name: answer_alone([1, len(name)], 4) for name in NAMES}


def test_without_a_step_in_flight_the_device_waits_for_the_host_each_time() -> None:
    runner, tokens = play_timed(False, two_requests())
    assert runner.log[:4] == ["launch 0", "wait 0", "launch 1", "wait 1"]
    assert runner.idle == [0, 3, 3, 3]
    assert tokens == {name: answer_alone([1, len(name)], 4) for name in NAMES}


def test_a_request_that_must_be_known_leaves_no_gap_where_another_goes_on() -> None:
    bound = request("bound", [1], 4, temperature=0, presence_penalty=0.1, ignore_eos=True)
    runner, tokens = play_timed(True, [*two_requests(), bound])
    assert runner.idle[:4] == [0, 0, 0, 0]
    assert tokens["bound"] == answer_alone([1], 4)
