"""A start is told in three writes, and what only counts pods waits; nothing that matters does."""

from typing import Any

import pytest

from forebay_operator.planning.status_pace import (
    COUNTING_SECONDS,
    CREATION_SECONDS,
    STARTING_SECONDS,
    patience_seconds,
)
from observed_builder import condition


def status(ready: str, created: str = "Creating", **rest: Any) -> dict[str, Any]:
    is_ready = "True" if ready == "AllReplicasReady" else "False"
    verdict = {"Creating": "Unknown", "PodsCreated": "True", "QuotaExceeded": "False"}[created]
    conditions = [
        condition("Ready", is_ready, ready),
        condition("PodsCreated", verdict, created),
    ]
    return {"observedGeneration": 1, "conditions": conditions, "replicas": 0} | rest


STARTING = status("Starting")
CASES = [
    pytest.param({}, STARTING, 0, id="the first word"),
    pytest.param(status("Inspecting"), STARTING, CREATION_SECONDS, id="pods are about to exist"),
    pytest.param(
        status("Inspecting"), status("Starting", "PodsCreated"), 0, id="pods exist from the start"
    ),
    pytest.param(STARTING, status("Starting", "PodsCreated"), STARTING_SECONDS, id="pods exist"),
    pytest.param(STARTING, status("Starting", replicas=1), STARTING_SECONDS, id="none serves yet"),
    pytest.param(
        status("Scaling"), status("Scaling", replicas=1), COUNTING_SECONDS, id="some serve"
    ),
    pytest.param(STARTING, status("Starting", "QuotaExceeded"), 0, id="pods are refused"),
    pytest.param(STARTING, status("AllReplicasReady"), 0, id="ready"),
    pytest.param(status("AllReplicasReady"), status("ContainerCrashed"), 0, id="a failure"),
    pytest.param(STARTING, status("Starting", observedGeneration=2), 0, id="an edit was seen"),
    pytest.param(STARTING, status("Starting", draining=[{"pod": "a"}]), 0, id="a drain begins"),
]


@pytest.mark.parametrize(("before", "after", "seconds"), CASES)
def test_how_long_a_status_may_wait(
    before: dict[str, Any], after: dict[str, Any], seconds: float
) -> None:
    assert patience_seconds(before, after) == seconds
