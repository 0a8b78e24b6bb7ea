"""What utilisation allows on a GPU, and what of that is left for the KV cache. Pure arithmetic.

--gpu-memory-utilization is a promise on all that is in use there, whatever it is used for: context,
libraries, weights, cache, activations and captured graphs. So the cache gets what the others leave,
as they were measured on a trial run, and what came of it is compared at the end.
"""

from __future__ import annotations

from forebay_budget.quantity import format_bytes

CACHE_SLACK_BYTES = 8 * 1024**2
"""What torch's allocator rounds the cache's few large tensors up by, at most."""


def allowed_bytes(utilization: float, total_bytes: int) -> int:
    """What may be in use on a GPU of total_bytes."""
    return int(utilization * total_bytes)


def cache_room_bytes(most_bytes: int, used_bytes: int, trial_cache_bytes: int) -> int:
    """What a cache may take so that no more than most_bytes are in use; 0 where nothing is left.

    used_bytes: in use when the largest steps had been run and captured over a small cache of
    trial_cache_bytes, which goes; with what was in use for a moment.
    """
    others_bytes = used_bytes - trial_cache_bytes
    return max(0, most_bytes - others_bytes - CACHE_SLACK_BYTES)


def explain_excess(used_bytes: int, most_bytes: int) -> str | None:
    """Why a promise was not kept, and what helps; None where it was."""
    if used_bytes <= most_bytes:
        return None
    used, excess = format_bytes(used_bytes), format_bytes(used_bytes - most_bytes)
    return (
        f"{used} of the GPU are in use, {excess} more than --gpu-memory-utilization allows; lower "
        "--kv-cache-memory-bytes, --max-num-batched-tokens or --max-num-seqs, or see what else "
        "uses this GPU"
    )
