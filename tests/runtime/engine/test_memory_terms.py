"""Planned and measured memory stand side by side, and what is far apart is logged as a warning."""

import logging
import mmap

import pytest
import torch

from forebay_budget.terms import Terms
from forebay_runtime.engine import VramTerm
from forebay_runtime.memory import Meter, compare_terms

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
