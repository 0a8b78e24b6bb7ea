"""The engine's thread: commands between steps, outputs in order, failures told to everyone."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from fake_engine import BOOM, HANG, REFUSE, FakeEngine, build_byte_tokenizer
from forebay_runtime.request import Load, Output, Request, SamplingParams
from forebay_runtime.server.engine_loop import Callbacks, EngineLoop
from forebay_runtime.server.errors import (
    ApiError,
    BadRequest,
    EngineFailed,
    QueueFull,
    RequestTimedOut,
    Unavailable,
)
from forebay_runtime.server.options import ServeOptions
from forebay_runtime.server.output_stream import Deadline
from forebay_runtime.server.queue_gate import QueueGate

TOKENIZER = build_byte_tokenizer()


class SteppedEngine(FakeEngine):
    """A fake engine that takes a step only when the test lets it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.allowed = threading.Semaphore(0)

    def step(self) -> list[Output]:
        self.allowed.acquire()
        return super().step()


def build_request(name: str, text: str = "ab", max_tokens: int = 1000) -> Request:
    return Request(name, TOKENIZER.encode(text), SamplingParams(max_tokens=max_tokens))


@asynccontextmanager
async def running(
    engine: FakeEngine, min_stall_seconds: float = 60.0
) -> AsyncIterator[tuple[EngineLoop, asyncio.Future[BaseException]]]:
    warm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    callbacks = Callbacks(lambda _: warm.set_result(None), failure.set_result, lambda _: None)
    loop = EngineLoop(lambda on_loss: engine, callbacks, min_stall_seconds)
    loop.start()
    await asyncio.wait({warm, failure}, return_when=asyncio.FIRST_COMPLETED)
    yield loop, failure
    if isinstance(engine, SteppedEngine):
        engine.allowed.release(10_000)
    await asyncio.to_thread(loop.stop, 0.0 if loop.is_stalled else 60.0)


class Outputs:
    """What a request is told, kept until it is asked for."""

    def __init__(self) -> None:
        self._items: asyncio.Queue[Output | ApiError] = asyncio.Queue()
        self.take = self._items.put_nowait

    async def next(self) -> Output:
        item = await self._items.get()
        if isinstance(item, ApiError):
            raise item
        return item


def submit(loop: EngineLoop, request: Request, timeout_seconds: float | None = None) -> Outputs:
    outputs = Outputs()
    deadline = None if timeout_seconds is None else Deadline.after(timeout_seconds)
    loop.submit(request, outputs.take, deadline)
    return outputs


async def collect(stream: Outputs) -> list[int]:
    tokens: list[int] = []
    while True:
        output = await stream.next()
        tokens.extend(output.token_ids)
        if output.finish_reason is not None:
            return tokens


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_outputs_come_in_order_and_end() -> None:
    async with running(FakeEngine()) as (loop, _):
        streams = [submit(loop, build_request(str(n), max_tokens=n + 1)) for n in range(9)]
        answers = await asyncio.gather(*map(collect, streams))
        assert answers == [(TOKENIZER.encode("ab") * 9)[: n + 1] for n in range(9)]
        assert loop.num_in_flight == 0
        await until(lambda: loop.load_now() == Load(0, 0, 0.0, 65_536))


async def test_an_abort_is_applied_before_the_next_step() -> None:
    engine = SteppedEngine()
    async with running(engine) as (loop, _):
        stream = submit(loop, build_request("one"))
        engine.allowed.release()
        while not (await stream.next()).token_ids:
            pass
        loop.abort("one")
        assert loop.num_in_flight == 0
        # The step in progress may have begun before; the one after it must not know the request.
        engine.allowed.release(2)
        await until(lambda: not engine.requests and not engine.aborted)
        assert engine.num_steps <= 3


async def test_a_request_that_the_engine_refuses_fails_alone() -> None:
    async with running(FakeEngine()) as (loop, _):
        good = submit(loop, build_request("good", max_tokens=3))
        bad = submit(loop, build_request("bad", text=REFUSE))
        with pytest.raises(BadRequest, match="can never run"):
            await bad.next()
        assert len(await collect(good)) == 3


async def test_a_broken_engine_ends_every_request_with_an_error() -> None:
    async with running(FakeEngine()) as (loop, failure):
        streams = [submit(loop, build_request(str(n))) for n in range(3)]
        streams.append(submit(loop, build_request("boom", text=BOOM)))
        for stream in streams:
            with pytest.raises(EngineFailed):
                await collect(stream)
        assert "told to break" in str(await failure)
        assert loop.num_in_flight == 0
        with pytest.raises(EngineFailed):
            submit(loop, build_request("late"))


async def test_a_failing_warm_up_is_told() -> None:
    async with running(FakeEngine(warm_up_error="no memory")) as (_, failure):
        assert str(await failure) == "no memory"


async def test_a_step_that_hangs_is_called_stalled() -> None:
    async with running(FakeEngine(), min_stall_seconds=0.01) as (loop, _):
        assert not loop.is_stalled
        submit(loop, build_request("hang", text=HANG))
        await until(lambda: loop.is_stalled)


async def test_work_that_the_engine_never_begins_is_called_stalled() -> None:
    engine = FakeEngine(max_num_seqs=0, step_seconds=0.001)
    async with running(engine, min_stall_seconds=0.05) as (loop, _):
        assert not loop.is_stalled
        submit(loop, build_request("waits"))
        await until(lambda: loop.is_stalled)
        assert (loop.load_now().num_running, loop.load_now().num_waiting) == (0, 1)
        loop.abort("waits")
        await until(lambda: not loop.is_stalled)


@pytest.mark.parametrize("max_num_seqs", [0, 1], ids=["queued", "running"])
async def test_a_request_out_of_time_ends_and_is_gone_from_the_engine(max_num_seqs: int) -> None:
    engine = FakeEngine(max_num_seqs=max_num_seqs, step_seconds=0.001)
    async with running(engine) as (loop, _):
        stream = submit(loop, build_request("slow", max_tokens=10**9), timeout_seconds=0.05)
        with pytest.raises(RequestTimedOut) as timeout:
            await collect(stream)
        assert (timeout.value.status, timeout.value.code) == (408, "timeout")
        await until(lambda: not engine.requests and not engine.aborted)
        assert loop.num_in_flight == 0


async def test_a_request_that_ends_in_time_is_left_alone() -> None:
    async with running(FakeEngine()) as (loop, _):
        stream = submit(loop, build_request("quick", max_tokens=2), timeout_seconds=0.05)
        assert len(await collect(stream)) == 2
        again = submit(loop, build_request("quick", max_tokens=2))
        await asyncio.sleep(0.1)
        assert len(await collect(again)) == 2


async def test_a_slow_step_is_not_called_stalled_where_warm_up_had_slow_ones() -> None:
    engine = SteppedEngine(slowest_warm_step_seconds=60.0)
    async with running(engine, min_stall_seconds=0.0) as (loop, _):
        stream = submit(loop, build_request("slow", max_tokens=1))
        await stream.next()
        await asyncio.sleep(0.01)
        assert not loop.is_stalled
        engine.allowed.release()
        await collect(stream)


async def test_cutting_ends_every_request_with_the_error_given() -> None:
    engine = SteppedEngine()
    async with running(engine) as (loop, _):
        streams = [submit(loop, build_request(str(n))) for n in range(3)]
        assert loop.cut_all(Unavailable("cut")) == 3
        for stream in streams:
            with pytest.raises(Unavailable, match="cut"):
                await collect(stream)
        with pytest.raises(Unavailable, match="cut"):
            submit(loop, build_request("late"))
        engine.allowed.release(2)
        await until(lambda: not engine.requests and not engine.aborted)


async def test_load_counts_what_the_engine_has_not_seen_yet_as_waiting() -> None:
    engine = SteppedEngine(max_num_seqs=2)
    async with running(engine) as (loop, _):
        fill(loop, ["a"] * 3)
        assert (loop.load_now().num_running, loop.load_now().num_waiting) == (0, 3)
        engine.allowed.release(100)
        await until(lambda: (loop.load_now().num_running, loop.load_now().num_waiting) == (2, 1))


def fill(loop: EngineLoop, texts: list[str]) -> None:
    for number, text in enumerate(texts):
        submit(loop, build_request(str(number), text))


@pytest.mark.parametrize(
    ("options", "in_flight", "new", "is_full"),
    [
        ({}, ["a"] * 50, [1] * 50, False),
        ({"max_num_queued_reqs": 0}, [], [1, 1], False),
        ({"max_num_queued_reqs": 0}, [], [1, 1, 1], True),
        ({"max_num_queued_reqs": 0}, ["a"], [1], False),
        ({"max_num_queued_reqs": 0}, ["a"] * 2, [1], True),
        ({"max_num_queued_reqs": 2}, ["a"] * 3, [1], False),
        ({"max_num_queued_reqs": 2}, ["a"] * 4, [1], True),
        ({"max_num_queued_tokens": 5}, [], [100], False),
        ({"max_num_queued_tokens": 5}, ["abc"], [2], False),
        ({"max_num_queued_tokens": 5}, ["abc"], [3], True),
    ],
    ids=[
        "no-limits",
        "seats-free",
        "more-than-seats",
        "last-seat",
        "no-seat",
        "queue-has-room",
        "queue-full",
        "long-prompt-alone",
        "tokens-fit",
        "tokens-full",
    ],
)
async def test_the_queue_lets_in_what_its_limits_allow(
    options: dict[str, int], in_flight: list[str], new: list[int], is_full: bool
) -> None:
    async with running(SteppedEngine()) as (loop, _):
        fill(loop, in_flight)
        rejected: list[str] = []
        gate = QueueGate(ServeOptions("fake", max_num_seqs=2, **options), loop, rejected.append)
        if not is_full:
            gate.check(len(new), sum(new))
            return
        with pytest.raises(QueueFull) as refusal:
            gate.check(len(new), sum(new))
        assert 1 <= (refusal.value.retry_after_seconds or 0) <= 120
        assert rejected == list(options)


async def test_a_request_behind_those_that_find_no_kv_blocks_waits() -> None:
    engine = SteppedEngine(max_num_seqs=1)
    async with running(engine) as (loop, _):
        fill(loop, ["a", "b"])
        engine.allowed.release(100)
        await until(lambda: loop.num_waiting_at_step == 1)
        options = ServeOptions("fake", max_num_seqs=8, max_num_queued_reqs=1)
        gate = QueueGate(options, loop, lambda _: None)
        with pytest.raises(QueueFull):
            gate.check(1, 1)
