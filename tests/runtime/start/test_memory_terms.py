"""Planned and measured memory stand side by side, and what is far apart is logged as a warning."""

import logging
import mmap
from collections.abc import Callable

import pytest
import torch

from forebay_budget.terms import CUDA_CONTEXT_BYTES, GRAPHS_BYTES, Terms, gpu_overhead_bytes
from forebay_runtime.config import StartError
from forebay_runtime.engine import VramTerm
from forebay_runtime.start.memory import compare_terms, split_overhead
from forebay_runtime.start.meter import Meter
from forebay_runtime.start.out_of_memory import explain_out_of_memory
from forebay_runtime.start.phases import Phase, Start
from forebay_runtime.start.rank_assembly import open_device

MIB = 1024**2
PLANNED = Terms(1_000 * MIB, 1_000 * MIB, 100 * MIB, 900 * MIB)


def test_terms_are_paired_by_name() -> None:
    assert compare_terms(PLANNED, Terms(1, 2, 3, 4)) == (
        VramTerm("weights", 1_000 * MIB, 1),
        VramTerm("kv_cache", 1_000 * MIB, 2),
        VramTerm("activation", 100 * MIB, 3),
        VramTerm("overhead", 900 * MIB, 4),
    )


@pytest.mark.parametrize(
    ("measured", "warnings"),
    [
        pytest.param(PLANNED, [], id="as-planned"),
        pytest.param(Terms(1_000 * MIB, 1_000 * MIB, 240 * MIB, 900 * MIB), [], id="within"),
        pytest.param(
            Terms(1_000 * MIB, 1_000 * MIB, 100 * MIB, 600 * MIB), ["term=overhead"], id="one-term"
        ),
        pytest.param(
            Terms(1_100 * MIB, 1_100 * MIB, 100 * MIB, 900 * MIB), ["Exceeded"], id="in-total"
        ),
    ],
)
def test_what_is_far_from_the_plan_is_a_warning(
    measured: Terms, warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        compare_terms(PLANNED, measured)
    assert len(caplog.messages) == len(warnings)
    assert all(word in line for word, line in zip(warnings, caplog.messages, strict=True))


def test_a_meter_sees_what_is_held_and_what_was_held_for_a_moment() -> None:
    meter = Meter(torch.device("cpu"))
    before = meter.used_bytes()
    meter.forget_peak()
    # Pages of their own: an allocator may have kept what earlier tests let go.
    with mmap.mmap(-1, 64 * MIB) as held:
        held.write(b"x" * len(held))
        with mmap.mmap(-1, 96 * MIB) as for_a_moment:
            for_a_moment.write(b"x" * len(for_a_moment))
        assert meter.used_bytes() - before > 56 * MIB
        assert meter.peak_bytes() > 80 * MIB


def _fail_in_capture() -> None:
    """As torch's own context ends a capture in which memory ran out."""
    try:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    finally:
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")


def _fail_in_driver() -> None:
    raise RuntimeError("CUDA error: out of memory")


def _fail_in_library() -> None:
    raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


def _fail_on_host() -> None:
    raise MemoryError


@pytest.mark.parametrize(
    ("fail", "detail"),
    [
        pytest.param(_fail_in_capture, "Tried to allocate 2 GiB", id="while a graph was captured"),
        pytest.param(_fail_in_driver, "CUDA error: out of memory", id="by the driver"),
        pytest.param(_fail_in_library, "CUBLAS_STATUS_ALLOC_FAILED", id="by a library"),
        pytest.param(_fail_on_host, "MemoryError", id="on the host"),
    ],
)
def test_out_of_memory_names_the_term_and_the_knob(fail: Callable[[], None], detail: str) -> None:
    with (
        pytest.raises(StartError, match="for the CUDA graphs; pass --enforce-eager") as raised,
        explain_out_of_memory("CUDA graphs", "pass --enforce-eager"),
    ):
        fail()
    assert detail in str(raised.value)


def test_another_error_stays_what_it_is() -> None:
    with (
        pytest.raises(RuntimeError, match="shapes differ"),
        explain_out_of_memory("CUDA graphs", "pass --enforce-eager"),
    ):
        raise RuntimeError("shapes differ")


def test_a_gpu_that_is_too_old_is_refused_before_anything_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.raises(StartError, match=r"capability 7\.5; the kernels need 8\.0 or newer"):
        open_device(torch.device("cuda", 0))


def test_a_gpus_overhead_is_told_in_parts_that_add_up() -> None:
    used = iter((0, 400 * MIB))
    start = Start(lambda: next(used))
    with start.phase(Phase.CONTEXT):
        pass
    parts = split_overhead(900 * MIB, start, graphs_bytes=300 * MIB)
    assert {part.name: part.measured_bytes // MIB for part in parts} == {
        "context": 400,
        "communication": 200,
        "graphs": 300,
    }
    assert sum(part.planned_bytes for part in parts) == gpu_overhead_bytes(1)
    assert (parts[0].planned_bytes, parts[2].planned_bytes) == (CUDA_CONTEXT_BYTES, GRAPHS_BYTES)
