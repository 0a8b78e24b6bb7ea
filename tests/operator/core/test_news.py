"""What a pod says is news only where a decision reads it."""

from dataclasses import replace
from typing import Any

import pytest

from forebay_operator.loads.news import MEMORY_JITTER_BYTES, is_news
from forebay_operator.observed import PodLoad

MEMORY = {"weights": 2**30, "kvCache": 2**33, "activation": 2**28, "overhead": 2**30}
KNOWN = PodLoad(True, 1, 2, 0.5, 300, "cuda", 0.7, MEMORY)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, False),
        ({"num_running": 2}, True),
        ({"num_waiting": 3}, True),
        ({"answered": False}, True),
        ({"device": "cpu"}, True),
        ({"kv_cache_usage": 0.9, "free_kv_tokens": 1}, False),
        ({"gpu_utilization": None}, False),
        ({"memory_bytes": MEMORY | {"weights": 2**30 + MEMORY_JITTER_BYTES}}, False),
        ({"memory_bytes": MEMORY | {"weights": 2**30 + MEMORY_JITTER_BYTES + 1}}, True),
        ({"memory_bytes": {}}, True),
    ],
    ids=[
        "the same",
        "more run",
        "more wait",
        "silence",
        "another device",
        "a fuller KV cache",
        "a GPU that does not tell any more",
        "a few bytes more",
        "more than a few bytes more",
        "memory that is not told any more",
    ],
)
def test_an_answer_is_news_where_a_decision_reads_it(
    change: dict[str, Any], expected: bool
) -> None:
    assert is_news(KNOWN, replace(KNOWN, **change)) is expected


def test_the_first_answer_is_news() -> None:
    assert is_news(None, PodLoad(answered=False))
