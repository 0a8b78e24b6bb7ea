"""One thread that owns the engine: it loads, warms up, then steps for as long as there is work.

The HTTP side lives on the asyncio loop and never touches the engine. It puts commands on a queue,
applied between two steps, and gets outputs and the load of each step in one callback. Everything
below the line "asyncio side" runs on the loop, everything above it on the engine's thread.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from forebay_runtime.engine import EngineLike
from forebay_runtime.request import Load, Output, Request
from forebay_runtime.server.errors import (
    ApiError,
    BadRequest,
    EngineFailed,
    RequestTimedOut,
    Unavailable,
)
from forebay_runtime.server.output_stream import Deadline, OutputStream, Take
from forebay_runtime.server.watchdog import Watchdog

logger = logging.getLogger(__name__)

OnLoss = Callable[[BaseException], None]

_IDLE = Load(num_running=0, num_waiting=0, kv_cache_usage=0.0, free_kv_tokens=0)


@dataclass(frozen=True)
class _Add:
    request: Request


@dataclass(frozen=True)
class _Abort:
    request_id: str


@dataclass(frozen=True)
class Callbacks:
    """Who is told, on the asyncio side."""

    on_warm: Callable[[EngineLike], None]
    on_failure: Callable[[BaseException], None]
    on_step: Callable[[Load], None]


class EngineLoop:
    """The engine's thread, and the asyncio side's only handle on it."""

    def __init__(
        self,
        load: Callable[[OnLoss], EngineLike],
        callbacks: Callbacks,
        min_stall_seconds: float,
    ) -> None:
        """load runs on the engine's thread and may take minutes.

        What it is given it may call on any thread, when the engine has lost what it runs on: the
        engine's thread may wait for that inside of a library.
        """
        self._load_engine = load
        self._callbacks = callbacks
        self._watchdog = Watchdog(min_stall_seconds)
        self.warmup_seconds = 0.0
        self._commands: queue.SimpleQueue[_Add | _Abort | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._streams: dict[str, OutputStream] = {}
        self._load = _IDLE
        self._refusal: ApiError | None = None
        self._has_failed = False
        # A daemon: a load that hangs must not keep a process alive that was told to go.
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def _run(self) -> None:
        try:
            engine = self._load_engine(lambda loss: self.post(self._fail, loss))
            self._warm_up(engine)
            while self._apply_commands(engine):
                if engine.has_work:
                    self._step(engine)
                else:
                    self.post(self._take_load, engine.load_now())
        except BaseException as exc:  # nothing may end this thread unseen
            self.post(self._fail, exc)

    def _warm_up(self, engine: EngineLike) -> None:
        start = time.monotonic()
        engine.warm_up()
        self.warmup_seconds = time.monotonic() - start
        self._watchdog.learn(engine.slowest_warm_step_seconds)
        self.post(self._take_load, engine.load_now())
        self.post(self._callbacks.on_warm, engine)

    def _apply_commands(self, engine: EngineLike) -> bool:
        """Apply what was asked since the last step; with no work, wait for something to do."""
        may_wait = not engine.has_work
        while True:
            try:
                command = self._commands.get(block=may_wait)
            except queue.Empty:
                return True
            if command is None:
                return False
            self._apply(engine, command)
            may_wait = False

    def _apply(self, engine: EngineLike, command: _Add | _Abort) -> None:
        if isinstance(command, _Abort):
            engine.abort(command.request_id)
            return
        request = command.request
        try:
            engine.add(request)
        except ValueError as exc:
            self.post(self._end, request.request_id, BadRequest(f"The engine refused: {exc}"))
        else:
            self.post(self._take_outputs, [Output(request.request_id)])

    def _step(self, engine: EngineLike) -> None:
        self._watchdog.begin_step()
        outputs = engine.step()
        self._watchdog.end_step()
        self.post(self._take_step, outputs, engine.load_now())

    def post(self, callback: Callable[..., None], *values: object) -> None:
        """Have the asyncio loop call back, from any thread."""
        try:
            self._loop.call_soon_threadsafe(callback, *values)
        except RuntimeError:  # the asyncio loop was closed: nobody is left to tell
            logger.debug("Dropped an output, the server was gone")

    # --- asyncio side ---

    def start(self) -> None:
        """Begin to load."""
        self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Ask the thread to end after its step and wait; says whether it did."""
        self._commands.put(None)
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def submit(self, request: Request, take: Take, deadline: Deadline | None = None) -> None:
        """Queue a request; take is told of each of its outputs, and of an error at its deadline.

        Raises: ApiError if the engine has failed, or every request was cut.
        """
        if self._refusal is not None:
            raise self._refusal
        stream = OutputStream(len(request.prompt_token_ids), take)
        if not self._streams:
            self._watchdog.wake()
        self._streams[request.request_id] = stream
        if deadline is not None:
            stream.timer = self._loop.call_at(
                deadline.at, self._time_out, request.request_id, deadline.seconds
            )
        self._commands.put(_Add(request))

    def abort(self, request_id: str) -> None:
        """End a request before the next step; one that has ended already is left alone."""
        if self._forget(request_id) is not None:
            self._commands.put(_Abort(request_id))

    def _forget(self, request_id: str) -> OutputStream | None:
        """Take a request that ends, or was aborted, off the list; None if it was before."""
        stream = self._streams.pop(request_id, None)
        if stream is not None and stream.timer is not None:
            stream.timer.cancel()
        return stream

    def _time_out(self, request_id: str, seconds: float) -> None:
        self._streams[request_id].put(
            RequestTimedOut(
                f"The request was not answered within its {seconds:g} seconds", code="timeout"
            )
        )
        self.abort(request_id)

    def cut_all(self, error: ApiError) -> int:
        """End every request with an error, and refuse more; returns how many there were."""
        self._refusal = error
        request_ids = list(self._streams)
        for request_id in request_ids:
            self._streams[request_id].put(error)
            self.abort(request_id)
        return len(request_ids)

    @property
    def num_in_flight(self) -> int:
        """Requests that the engine has not finished."""
        return len(self._streams)

    @property
    def num_waiting_at_step(self) -> int:
        """Requests that the engine could not run in its last step."""
        return min(self._load.num_waiting, self.num_in_flight)

    @property
    def num_unread_tokens(self) -> int:
        """Prompt tokens of the requests that have no token of an answer yet."""
        return sum(s.num_prompt_tokens for s in self._streams.values() if not s.has_begun)

    def load_now(self) -> Load:
        """The load as of the last step; requests that came since then wait."""
        num_running = min(self._load.num_running, self.num_in_flight)
        num_waiting = self.num_in_flight - num_running
        return replace(self._load, num_running=num_running, num_waiting=num_waiting)

    @property
    def is_stalled(self) -> bool:
        """Is a step stuck, or did nothing come of the work that there is, for too long?"""
        return self._watchdog.is_stalled(has_work=bool(self._streams))

    def _take_load(self, load: Load) -> None:
        self._load = load

    def _take_step(self, outputs: list[Output], load: Load) -> None:
        self._load = load
        self._watchdog.see(outputs, load)
        self._callbacks.on_step(load)
        self._take_outputs(outputs)

    def _take_outputs(self, outputs: list[Output]) -> None:
        for output in outputs:
            stream = self._streams.get(output.request_id)
            if stream is None:  # aborted meanwhile
                continue
            stream.has_begun = stream.has_begun or bool(output.token_ids)
            if output.finish_reason is None:
                stream.put(output)
            elif output.finish_reason in ("stop", "length"):
                self._forget(output.request_id)
                stream.put(output)
            else:
                self._end(output.request_id, _to_error(output))

    def _end(self, request_id: str, error: ApiError) -> None:
        stream = self._forget(request_id)
        if stream is not None:
            stream.put(error)

    def _fail(self, cause: BaseException) -> None:
        if self._has_failed:  # the engine's thread may find out too
            return
        self._has_failed = True
        error = EngineFailed("The engine failed while it made this answer; try again")
        self._refusal = error
        for request_id in list(self._streams):
            self._end(request_id, error)
        self._callbacks.on_failure(cause)


def _to_error(output: Output) -> ApiError:
    if output.finish_reason == "error":
        # One request's own end, told by the engine: another try would end alike.
        return BadRequest(output.error or "The engine could not finish this answer")
    return Unavailable("The answer was cut before its end; try again", retry_after_seconds=1)
