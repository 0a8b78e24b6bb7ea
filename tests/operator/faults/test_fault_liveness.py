"""What a liveness probe finds in processes that went silent, and in those that only wait."""

import pytest

from faulted_stage import Stage
from operator_process import wait_until

pytestmark = pytest.mark.component


def test_a_blocked_event_loop_does_not_answer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_TEST_PLUGIN", "blocking_handler")
    with stage.start() as operator:
        operator.wait_for("Lease was acquired")
        wait_until("It is alive", operator.is_alive)
        stage.kubectl("create", "configmap", "block")
        wait_until("It does not answer", lambda: not operator.is_alive(0.5))
        operator.kill()


def test_whoever_stands_by_is_alive_and_so_is_one_without_an_api_server(stage: Stage) -> None:
    with stage.start("operator-1") as leader:
        leader.wait_for("Lease was acquired")
        with stage.start("operator-2", kubernetes_cluster__LEASE_TIMEOUT_SECONDS=0.5) as other:
            other.wait_for("Metrics are served")
            stage.proxy.set_reachable(False)
            other.wait_for("Lease could not be read or written")
            assert other.is_alive()
            assert other.metrics().value("leader") == 0
            stage.proxy.set_reachable(True)
