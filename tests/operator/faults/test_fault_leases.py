"""Two operators at once: whatever becomes of the one, only the other's word counts."""

import signal
from collections.abc import Iterator

import pytest

from fault_proxy import Call, Fault, FaultProxy
from faulted_stage import Stage, is_ended
from operator_process import wait_until

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
    with stage.start("frozen", **SHORT) as frozen:
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


def test_a_write_that_arrives_after_the_lease_has_passed_on_is_put_right(
    stage: Stage, other_proxy: FaultProxy
) -> None:
    def rule(call: Call) -> Fault | None:
        is_late = call.is_write and call.plural == "deployments"
        return Fault(delay_seconds=8.0) if is_late else None

    with stage.start("late", **SHORT) as late:
        stage.settle()
        stage.proxy.rule = rule
        stage.apply(replicas=3)
        wait_until(
            "The late write is under way", lambda: stage.proxy.calls[-1].plural == "deployments"
        )
        late.process.send_signal(signal.SIGSTOP)
        stage.apply()
        with stage.start("other", other_proxy, **SHORT) as other:
            other.wait_for("Lease was acquired")
            wait_until("The late write has arrived", lambda: num_replicas(stage) == 3)
            stage.wait_ready()
            stage.expect_undisturbed()
            late.kill()


def num_replicas(stage: Stage) -> int:
    deployment = stage.node.get("deployments", "smollm2") or {}
    return int(deployment["spec"]["replicas"])
