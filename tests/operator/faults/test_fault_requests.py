"""What an API server or a network does to single requests: the end is the undisturbed one."""

from collections import Counter

import pytest

from fault_proxy import LOST, UNANSWERED, Call, Fault, refuse
from faulted_stage import Stage

pytestmark = pytest.mark.component

IMPATIENT = {"workqueue__FIRST_DELAY_SECONDS": 0.05, "workqueue__LONGEST_DELAY_SECONDS": 0.2}
FAULTS = (
    refuse(429, "too many requests", Retry_After="1"),
    refuse(409, "the object has been modified"),
    refuse(500, "etcdserver: request timed out"),
    refuse(503, "apiserver is shutting down"),
    refuse(504, "etcdserver: leader changed"),
    LOST,
    UNANSWERED,
)


def test_every_write_may_meet_every_fault_once(stage: Stage) -> None:
    met: Counter[tuple[str, str]] = Counter()

    def rule(call: Call) -> Fault | None:
        if not call.is_write or "/events" in call.path:
            return None
        met[call.method, call.path] += 1
        turn = met[call.method, call.path] - 1
        return FAULTS[turn] if turn < len(FAULTS) else None

    stage.proxy.rule = rule
    with stage.start(**IMPATIENT):
        stage.apply()
        stage.wait_ready()
        stage.expect_undisturbed()
    children = ("serviceaccounts", "services", "jobs", "controllerrevisions", "deployments")
    for plural in (*children, "inferenceservices"):
        assert any(plural in path and num >= len(FAULTS) for (_, path), num in met.items()), plural


def test_every_list_may_fail_at_first(stage: Stage) -> None:
    met: Counter[str] = Counter()

    def rule(call: Call) -> Fault | None:
        if call.method != "GET" or call.is_lease:
            return None
        met[call.path] += 1
        busy = refuse(503, "apiserver is shutting down", Retry_After="1")
        return {1: refuse(500), 2: busy}.get(met[call.path])

    stage.proxy.rule = rule
    again = {"controller__FILL_AGAIN_SECONDS": 0.1, "main__RETRY_SECONDS": 0.1}
    with stage.keep_running(**IMPATIENT, **again) as ends:
        stage.apply()
        stage.wait_ready()
        stage.expect_undisturbed()
    assert ends == [0]


@pytest.mark.long
def test_a_slow_api_server_only_takes_longer(stage: Stage) -> None:
    stage.proxy.rule = lambda call: Fault(delay_seconds=3.0 if call.is_lease else 0.3)
    with stage.start() as operator:
        stage.apply()
        stage.wait_ready()
        stage.expect_undisturbed()
        assert "Lease was not renewed" not in operator.log


def test_a_write_may_take_as_long_as_an_admission_webhook_may(stage: Stage) -> None:
    """Ten seconds is what Kubernetes gives a webhook unless it is told otherwise."""
    stage.proxy.rule = lambda call: (
        Fault(delay_seconds=6.0) if call.is_write and call.plural == "services" else None
    )
    with stage.start() as operator:
        stage.apply()
        stage.wait_ready()
        stage.expect_undisturbed()
        assert "API request failed" not in operator.log
