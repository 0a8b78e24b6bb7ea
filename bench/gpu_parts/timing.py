"""Times calls on a GPU as serving makes them: in a CUDA graph, with nothing of theirs in L2."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch

_FLUSHED_BYTES = 256 * 2**20
"""More than the L2 of any GPU."""


def seconds_of(calls: Sequence[Callable[[], object]], device: torch.device, repeats: int) -> float:
    """The median time of one of several calls, which follow one another in one graph."""
    if device.type == "cpu":
        start = time.perf_counter()
        for call in calls:
            call()
        return (time.perf_counter() - start) / len(calls)
    graph = _capture(calls)
    flushed = torch.empty(_FLUSHED_BYTES, dtype=torch.uint8, device=device)
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # The graph is queued while this runs, so that its launch is not in the time.
        flushed.zero_()
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times) / len(calls)


def _capture(calls: Sequence[Callable[[], object]]) -> torch.cuda.CUDAGraph:
    """A graph of all calls; each runs once before, as what compiles cannot be captured."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph
