"""Two operators at once: whatever becomes of the one, only the other's word counts."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fault_proxy import Call, Fault, FaultProxy
from faulted_stage import Stage, is_ended
from operator_process import OperatorProcess, wait_until

pytestmark = pytest.mark.component

SHORT = {
    "lease__DURATION_SECONDS": 4,
    "lease__DEADLINE_SECONDS": 2.5,
    "lease__LAST_WRITE_SECONDS": 3.5,
    "lease__RENEW_SECONDS": 0.5,
}


@pytest.fixture
def other_proxy(stage: Stage) -> Iterator[FaultProxy]:
    proxy = FaultProxy(stage.node.server.url, stage.node.server.folder)
    with proxy.running():
        yield proxy


def test_one_that_was_frozen_past_its_lease_writes_nothing_more(
    stage: Stage, other_proxy: FaultProxy
) -> None:
    with stage.start("frozen", **SHORT) as frozen, killed_at_last(frozen):
        stage.settle()
        with stage.start("other", other_proxy, **SHORT) as other:
            wait_until("The other is up", lambda: "Activity 'login' succeeded" in other.log)
            frozen.process.send_signal(signal.SIGSTOP)
            stage.apply(replicas=3)
            other.wait_for("Lease was acquired")
            num_writes = len(stage.proxy.writes)
            frozen.process.send_signal(signal.SIGCONT)
            wait_until("The frozen one ends", lambda: is_ended(frozen))
            stage.settle()
        assert len(stage.proxy.writes) == num_writes
        assert "Lease was lost" in frozen.log


@pytest.mark.long
def test_a_write_that_arrives_after_the_lease_has_passed_on_is_put_right(
    stage: Stage, other_proxy: FaultProxy
) -> None:
    sent, arrived = threading.Event(), threading.Event()

    def rule(call: Call) -> Fault | None:
        if not call.is_write or call.plural != "deployments":
            return None
        sent.set()
        return Fault(delay_seconds=8.0, and_then=arrived.set)

    with stage.start("late", **SHORT) as late, killed_at_last(late):
        stage.settle()
        stage.proxy.rule = rule
        stage.apply(replicas=3)
        wait_until("The late write is under way", sent.is_set)
        late.process.send_signal(signal.SIGSTOP)
        stage.apply()
        with stage.start("other", other_proxy, **SHORT) as other:
            other.wait_for("Lease was acquired")
            wait_until("The late write has arrived", arrived.is_set)
            stage.expect_undisturbed()
        assert any(call.plural == "deployments" for call in other_proxy.writes)


@contextmanager
def killed_at_last(operator: OperatorProcess) -> Iterator[None]:
    """Whatever comes, nobody waits for an operator that is frozen."""
    try:
        yield
    finally:
        operator.kill()
