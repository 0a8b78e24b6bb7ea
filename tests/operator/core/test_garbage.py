"""What refers to itself is let go of by and by, though nobody looks for it at once."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from forebay_operator import garbage


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def pace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = gc.get_threshold()
    monkeypatch.setattr(garbage, "SWEEP_SECONDS", 0.0)
    yield
    gc.set_threshold(*before)


async def test_a_cycle_is_swept_away_however_old_it_is() -> None:
    cycle = weakref.ref(Cycle())
    sweeping = asyncio.create_task(garbage.sweep_garbage())
    for _ in range(3):
        await asyncio.sleep(0)
    sweeping.cancel()
    assert cycle() is None
    assert gc.get_threshold() == garbage.THRESHOLDS
