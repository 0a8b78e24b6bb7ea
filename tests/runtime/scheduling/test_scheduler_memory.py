"""Of the KV cache's slots that requests hold, nearly all hold tokens."""

import random

import pytest

from fake_runner import FakeRunner, FakeSampler
from forebay_runtime.engine import Engine, Warmth, Widths
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.scheduling.admission import Rules
from forebay_runtime.scheduling.batch import Limits
from forebay_runtime.scheduling.blocks import BlockPool
from forebay_runtime.scheduling.scheduler import Scheduler

BLOCK_SIZE = 16


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(Rules(), id="shared-prefixes"),
        pytest.param(Rules(has_prefix_cache=False), id="nothing-shared"),
    ],
)
def test_under_a_mixed_load_nine_of_ten_held_slots_hold_tokens(rules: Rules) -> None:
    chance = random.Random(0)
    scheduler = Scheduler(BlockPool(200, BLOCK_SIZE), Limits(8, 128, 1_024), frozenset(), rules)
    engine = Engine(scheduler, FakeRunner(BLOCK_SIZE), FakeSampler(), Warmth, Widths(97, 8))
    num_slots = num_filled = 0
    for index in range(60):
        num_tokens = int(chance.lognormvariate(5, 0.8)) % 900 + 1
        prompt = [index % 3] * 40 + [chance.randrange(97) for _ in range(num_tokens)]
        sampling = SamplingParams(chance.randrange(1, 120), temperature=0, ignore_eos=True)
        engine.add(Request(str(index), prompt, sampling))
        for _ in range(chance.randrange(12)):
            engine.step()
            load = engine.load_now()
            num_held = 200 * BLOCK_SIZE - load.free_kv_tokens
            num_slots += num_held
            num_filled += round(num_held * (1 - load.kv_fragmentation))
    assert num_slots > 100_000
    assert num_filled / num_slots >= 0.9


def test_the_load_tells_what_the_cache_holds_in_vain() -> None:
    scheduler = Scheduler(BlockPool(10, BLOCK_SIZE), Limits(4, 64, 128), frozenset())
    engine = Engine(scheduler, FakeRunner(BLOCK_SIZE), FakeSampler(), Warmth, Widths(97, 8))
    assert engine.load_now().kv_fragmentation == 0.0
    engine.add(Request("a", [1] * 20, SamplingParams(5, temperature=0)))
    engine.step()
    assert engine.load_now().kv_fragmentation == 12 / 32
