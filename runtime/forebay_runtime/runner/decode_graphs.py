"""Decode steps that are captured once and replayed: a GPU is told of a whole step at once.

A recorder captures what a function launches. A CUDA graph repeats exactly that, with the same
addresses and the same numbers of the host; only what stands in the buffers differs. So a function
that is captured takes its inputs from buffers, leaves its outputs in buffers, and asks the device
nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Protocol

import torch

from forebay_runtime.runner.graph_sizes import graph_sizes, size_for


class Recorder(Protocol):
    """Captures work for a device."""

    def record(self, launch: Callable[[], None]) -> Callable[[], None]:
        """Capture what launch launches, and return what launches all of it again.

        launch has run before, so that nothing is compiled or loaded meanwhile.
        """

    @property
    def num_bytes(self) -> int:
        """What all that was captured has taken of the device's memory."""


class CudaRecorder:
    """Captures CUDA graphs, which share one pool of memory: only one of them runs at a time."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self._pool: Any = None
        self._stream = _capture_stream(torch.cuda.current_device())

    def record(self, launch: Callable[[], None]) -> Callable[[], None]:
        """Capture a graph."""
        graph = torch.cuda.CUDAGraph()
        free_bytes, _ = torch.cuda.mem_get_info()
        torch.cuda.synchronize()
        # Not by torch.cuda.graph, which first gives back to the driver what steps work in: they
        # would ask for it again while requests wait.
        with _garbage_left_alone(), torch.cuda.stream(self._stream):
            # Other threads go on to talk to the driver.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                launch()
            except BaseException:
                # What it says about a capture that failed leads nowhere.
                with suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
        self._pool = graph.pool()
        self.num_bytes += free_bytes - torch.cuda.mem_get_info()[0]
        replay: Callable[[], None] = graph.replay
        return replay


@cache
def _capture_stream(device_index: int) -> torch.cuda.Stream:
    """One for all captures of a process: cuBLAS keeps a workspace for every stream that it met,
    so another one for the trial's would take memory that the trial did not show."""
    return torch.cuda.Stream(device_index)


@contextmanager
def _garbage_left_alone() -> Iterator[None]:
    """Let no garbage be collected meanwhile: it may hold what a capture forbids to free."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class DecodeGraphs:
    """A captured decode step for each of the graph sizes up to max_num_seqs, and their outputs.

    logits: [max_num_seqs, V] float32; is_finite: [max_num_seqs] bool. Every captured step writes
    to their first rows, so they stand until the next replay.
    """

    def __init__(
        self, recorder: Recorder, max_num_seqs: int, vocab_size: int, device: torch.device
    ) -> None:
        """Capture nothing yet."""
        self.sizes = graph_sizes(max_num_seqs)
        self.logits = torch.zeros(max_num_seqs, vocab_size, device=device)
        self.is_finite = torch.zeros(max_num_seqs, dtype=torch.bool, device=device)
        self._recorder = recorder
        self._replays: dict[int, Callable[[], None]] = {}

    def capture(self, size: int, launch: Callable[[], None]) -> None:
        """Capture launch, a step of so many sequences, and bring it to the device.

        Ask for the largest size first: the others find room in what it took.
        """
        launch()
        replay = self._replays[size] = self._recorder.record(launch)
        replay()

    @property
    def num_bytes(self) -> int:
        """What captured steps have taken of the device's memory."""
        return self._recorder.num_bytes

    def size_for(self, num_seqs: int) -> int | None:
        """The size at which a step of num_seqs is replayed; None before all are captured."""
        is_ready = len(self._replays) == len(self.sizes)
        return size_for(num_seqs, self.sizes) if is_ready else None

    def replay(self, size: int) -> None:
        """Launch a captured step."""
        self._replays[size]()
