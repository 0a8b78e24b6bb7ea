"""The other ranks, as rank 0 leads them: started, told, asked, watched, ended.

A thread watches them for as long as they are wanted, and tells of the first that is lost. By then
rank 0 may wait for that rank inside of a library, so all others are ended at once, and whoever
started them is told on the watch's thread. Imports no torch.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.parallel.messages import Answer, Message
from forebay_runtime.parallel.rank_loss import Finding, RankLost, explain_loss
from forebay_runtime.parallel.rank_process import RankProcess

logger = logging.getLogger(__name__)

OnLoss = Callable[[RankLost], None]

_TICK_SECONDS = 0.5
_START_SECONDS = 300
"""A cold node reads gigabytes of libraries."""
_ASK_SECONDS = 3600
"""Loading: all ranks read about as much as rank 0, at the same time."""
_COLD_STEP_SECONDS = 600
"""A step of warm-up compiles."""
_STALL_FACTOR = 10
"""So many times slower than the slowest step of warm-up is stuck."""
_EXPLAIN_SECONDS = 5.0
"""How long after an exchange broke the rank that broke it may take to be found gone."""


class Followers:
    """Ranks 1 … num_ranks - 1."""

    def __init__(
        self, num_ranks: int, most_silent_seconds: float, on_loss: OnLoss | None = None
    ) -> None:
        """Start them; start returns once they are there.

        on_loss: told once, on the watch's thread.
        Raises: StartError.
        """
        self.num_ranks = num_ranks
        self._active = num_ranks
        self.loss: RankLost | None = None
        self._on_loss = on_loss
        self._most_silent_ticks = int(most_silent_seconds / _TICK_SECONDS)
        self._most_behind_ticks = int(_COLD_STEP_SECONDS / _TICK_SECONDS)
        self._processes: list[RankProcess] = []
        self._meetings = itertools.count()
        self.meeting_file = -1
        """The number of an open file that all ranks have, and nobody else; it has no name."""
        self._closed = threading.Event()
        self._spawned = threading.Event()
        self._start_error: OSError | None = None
        self._thread = threading.Thread(target=self._watch, name="rank-watch", daemon=True)
        self._thread.start()
        self._spawned.wait()
        if self._start_error is not None:
            self.close()
            raise StartError(
                f"Rank {len(self._processes) + 1} of {num_ranks} could not be started: "
                f"{self._start_error.strerror}; this container may have too few processes, files "
                "or memory"
            ) from self._start_error

    @property
    def process_ids(self) -> list[int]:
        """Of ranks 1 and up."""
        return [process.process_id for process in self._processes]

    def next_meeting(self) -> int:
        """By which number the ranks meet next."""
        return next(self._meetings)

    def use(self, num_ranks: int) -> None:
        """Lead only the first num_ranks from here on, once each has imported what it needs.

        Raises: RankLost, or StartError if one takes too long.
        """
        self._active = num_ranks
        if all(process.is_started for process in self._processes):
            return
        self._collect_from(self._processes, _START_SECONDS)
        for process in self._processes:
            process.is_started = True

    def expect_steps(self, slowest_seconds: float) -> None:
        """Warm-up has shown how long a step may take; far slower is stuck."""
        seconds = _STALL_FACTOR * slowest_seconds
        self._most_behind_ticks = max(self._most_silent_ticks, int(seconds / _TICK_SECONDS))

    def tell(self, message: Message) -> None:
        """Tell all, without waiting.

        Raises: RankLost.
        """
        data = pickle.dumps(message)
        try:
            for process in self._led:
                process.tell(data)
        except OSError as error:
            raise self.explain(error) from error

    def ask(self, message: Message) -> list[Any]:
        """Tell all, and wait for their answers, rank 1's first.

        Raises: RankLost, or StartError with what one could not do.
        """
        self.begin_asking(message)
        return self.collect()

    def begin_asking(self, message: Message) -> None:
        """Tell all; collect waits for the answers."""
        for process in self._led:
            process.is_asked = True
        self.tell(message)

    def collect(self) -> list[Any]:
        """The answers of all, rank 1's first.

        Raises: RankLost, or StartError with what one could not do.
        """
        return self._collect_from(self._led, _ASK_SECONDS)

    def _collect_from(self, processes: list[RankProcess], seconds: float) -> list[Any]:
        deadline = time.monotonic() + seconds
        answers = [self._receive(process, deadline) for process in processes]
        for process, answer in zip(processes, answers, strict=True):
            if answer.failure is not None:
                raise StartError(f"{process.name}: {answer.failure}")
        return [answer.value for answer in answers]

    def _receive(self, process: RankProcess, deadline: float) -> Answer:
        try:
            while (answer := process.receive(_TICK_SECONDS)) is None:
                if self.loss is not None:
                    raise self.loss
                if time.monotonic() > deadline:
                    raise StartError(f"{process.name} did not answer in time")
        except (EOFError, OSError) as error:
            raise self.explain(error) from error
        return answer

    def explain(self, error: BaseException) -> BaseException:
        """The loss of a rank behind an exchange that broke; error itself where there is none."""
        deadline = time.monotonic() + _EXPLAIN_SECONDS
        while self.loss is None and time.monotonic() < deadline:
            time.sleep(_TICK_SECONDS / 10)
        return self.loss or error

    def close(self) -> None:
        """End all."""
        self._closed.set()
        self._thread.join()
        for process in self._processes:
            process.close()
        if self.meeting_file >= 0:
            os.close(self.meeting_file)

    @property
    def _led(self) -> list[RankProcess]:
        return self._processes[: self._active - 1]

    def _watch(self) -> None:
        # The kernel ends a rank with the thread that started it, so this one does.
        try:
            self._spawn()
        except OSError as error:
            self._start_error = error
        finally:
            self._spawned.set()
        while not self._closed.wait(_TICK_SECONDS):
            # An error goes from rank to rank: what began it may show a moment later.
            if not self._find_lost() or self._closed.wait(_TICK_SECONDS):
                continue
            # One that was stopped may have gone on.
            if findings := self._find_lost():
                self._lose(explain_loss(findings))
                return

    def _spawn(self) -> None:
        self.meeting_file = os.memfd_create("forebay-ranks")
        for rank in range(1, self.num_ranks):
            self._processes.append(RankProcess(rank, self.num_ranks, self.meeting_file))

    def _find_lost(self) -> list[Finding]:
        ticks = self._most_silent_ticks, self._most_behind_ticks
        findings = [process.find_loss(*ticks) for process in self._processes]
        return [finding for finding in findings if finding is not None]

    def _lose(self, loss: RankLost) -> None:
        logger.error("Lost a rank: %s", loss)
        self.loss = loss
        for process in self._processes:
            process.kill()
        if self._on_loss is not None:
            self._on_loss(loss)


def start_followers(config: EngineConfig, on_loss: OnLoss | None = None) -> Followers | None:
    """The other ranks that a configuration asks for, started; None where there is one rank."""
    if config.num_ranks == 1:
        return None
    return Followers(config.num_ranks, config.rank_timeout_seconds, on_loss)
