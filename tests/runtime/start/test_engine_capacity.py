"""What a cache holds decides how long requests may be."""

from pathlib import Path
from typing import Any

import pytest

from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.scheduling.batch import Limits
from forebay_runtime.start.capacity import (
    BlockShape,
    choose_limits,
    choose_num_blocks,
    fit_limits,
)

SHAPE = BlockShape(num_tokens=16, num_bytes=1_000)
WINDOWED = BlockShape(num_tokens=16, num_bytes=1_000, window=64)


def config(**flags: Any) -> EngineConfig:
    return EngineConfig(Path("model"), **flags)


@pytest.mark.parametrize(
    ("flags", "shape", "length"),
    [
        pytest.param({}, SHAPE, 4096, id="the-model's"),
        pytest.param({"max_model_len": 100}, SHAPE, 100, id="as-asked"),
        pytest.param({"kv_cache_memory_bytes": 10_999}, SHAPE, 160, id="what-the-cache-holds"),
        pytest.param({"kv_cache_memory_bytes": 1_000}, SHAPE, 16, id="one-block"),
        pytest.param({"kv_cache_memory_bytes": 10**9}, SHAPE, 4096, id="more-than-the-model"),
        pytest.param({"kv_cache_memory_bytes": 5_000}, WINDOWED, 4096, id="a-window-held"),
        pytest.param({"kv_cache_memory_bytes": 4_000}, WINDOWED, 64, id="a-window-not-held"),
        pytest.param(
            {"kv_cache_memory_bytes": 5_000, "max_model_len": 4096}, WINDOWED, 4096, id="asked-too"
        ),
    ],
)
def test_the_length_is_the_longest_that_fits(
    flags: dict[str, int], shape: BlockShape, length: int
) -> None:
    assert choose_limits(config(**flags), 4096, shape).max_model_len == length


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        pytest.param({"max_model_len": 4097}, "4097 is more than the 4096", id="positions"),
        pytest.param(
            {"max_model_len": 100, "kv_cache_memory_bytes": 6_999},
            "holds 96 tokens, too few for one request of 100; raise it to 7000",
            id="asked-and-too-long",
        ),
        pytest.param({"kv_cache_memory_bytes": 999}, "holds 0 tokens", id="no-block"),
    ],
)
def test_what_can_never_fit_is_refused(flags: dict[str, int], sentence: str) -> None:
    with pytest.raises(StartError, match=sentence):
        choose_limits(config(**flags), 4096, SHAPE)


@pytest.mark.parametrize(
    ("limits", "shape", "num_blocks"),
    [
        pytest.param(Limits(2, 64, 256), SHAPE, 16, id="one-whole"),
        pytest.param(Limits(8, 64, 256), SHAPE, 32, id="a-quarter-each"),
        pytest.param(Limits(2, 65, 4096), WINDOWED, 9, id="a-window-and-a-step"),
    ],
)
def test_by_default_the_cache_holds_one_whole_or_a_quarter_of_each(
    limits: Limits, shape: BlockShape, num_blocks: int
) -> None:
    assert choose_num_blocks(limits, shape) == num_blocks


@pytest.mark.parametrize(
    ("num_blocks", "shape", "length"),
    [
        pytest.param(300, SHAPE, 4096, id="all-fits"),
        pytest.param(10, SHAPE, 160, id="what-fits"),
        pytest.param(5, WINDOWED, 4096, id="the-window-fits"),
    ],
)
def test_what_was_not_asked_gives_way_to_the_memory(
    num_blocks: int, shape: BlockShape, length: int
) -> None:
    assert fit_limits(config(), Limits(8, 64, 4096), num_blocks, shape).max_model_len == length


@pytest.mark.parametrize(
    ("flags", "num_blocks", "sentence"),
    [
        pytest.param({"max_model_len": 100}, 6, "holds 96 tokens .* request of 100", id="asked"),
        pytest.param({}, 0, "holds 0 tokens .* request of 2;.* --max-num-seqs", id="nothing"),
    ],
)
def test_too_little_memory_is_refused_with_the_knobs(
    flags: dict[str, int], num_blocks: int, sentence: str
) -> None:
    limits = Limits(8, 64, flags.get("max_model_len", 4096))
    with pytest.raises(StartError, match=sentence):
        fit_limits(config(**flags), limits, num_blocks, SHAPE)
