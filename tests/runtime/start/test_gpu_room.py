"""What utilisation leaves for the KV cache, and whether the promise was kept."""

import pytest

from forebay_runtime.start.gpu_room import (
    CACHE_SLACK_BYTES,
    allowed_bytes,
    cache_room_bytes,
    explain_excess,
)

GIB = 1024**3


@pytest.mark.parametrize(
    ("used_gib", "trial_gib", "room_gib"),
    [
        pytest.param(20, 2, 54, id="the trial's cache goes"),
        pytest.param(20, 0, 52, id="without one all that is in use stays"),
        pytest.param(72, 0, 0, id="nothing is left"),
        pytest.param(90, 2, 0, id="others have more than is allowed"),
    ],
)
def test_the_cache_gets_what_all_else_leaves(used_gib: int, trial_gib: int, room_gib: int) -> None:
    room = cache_room_bytes(72 * GIB, used_gib * GIB, trial_gib * GIB)
    assert room == max(0, room_gib * GIB - CACHE_SLACK_BYTES)


@pytest.mark.parametrize("others_bytes", [0, 1, 17 * GIB + 5, 71 * GIB])
def test_with_the_whole_cache_no_more_is_in_use_than_was_promised(others_bytes: int) -> None:
    most = allowed_bytes(0.9, 80 * GIB)
    room = cache_room_bytes(most, others_bytes + GIB, GIB)
    assert others_bytes + room + CACHE_SLACK_BYTES <= most
    assert explain_excess(others_bytes + room, most) is None


def test_a_broken_promise_says_by_how_much_and_what_to_turn() -> None:
    assert explain_excess(75 * GIB, 72 * GIB) == (
        "75.0 GiB of the GPU are in use, 3.0 GiB more than --gpu-memory-utilization allows; lower "
        "--kv-cache-memory-bytes, --max-num-batched-tokens or --max-num-seqs, or see what else "
        "uses this GPU"
    )
