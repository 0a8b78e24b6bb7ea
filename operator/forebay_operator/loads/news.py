"""Which answers of pods are news: only what a decision reads puts a service on the queue."""

from forebay_operator.observed import PodLoad

MEMORY_JITTER_BYTES = 16 * 1024**2
"""Memory is measured once in a pod's life; less than this is no difference to anyone."""


def is_news(before: PodLoad | None, after: PodLoad) -> bool:
    """Whether what a pod says now may change a decision about its service.

    Scaling and draining read who runs and who waits, readiness reads the device, and status the
    memory. The KV cache's use and the GPU's move with every step and decide nothing: who shows
    them takes the newest at the next decision, or asks to be looked at again.
    """
    if before is None:
        return True
    return _read(before) != _read(after) or _has_moved(before, after)


def is_same_memory(one_bytes: int, other_bytes: int) -> bool:
    """Whether two measurements differ by nothing that anyone should hear of."""
    return abs(one_bytes - other_bytes) <= MEMORY_JITTER_BYTES


def _read(load: PodLoad) -> tuple[bool, int, int, str]:
    return load.answered, load.num_running, load.num_waiting, load.device


def _has_moved(before: PodLoad, after: PodLoad) -> bool:
    if before.memory_bytes.keys() != after.memory_bytes.keys():
        return True
    return not all(
        is_same_memory(before.memory_bytes[term], num_bytes)
        for term, num_bytes in after.memory_bytes.items()
    )
