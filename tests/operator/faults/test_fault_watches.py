"""Watches that go silent, end, or say that they cannot go on."""

import time

import pytest

from fault_proxy import Call, Fault, end_watch
from faulted_stage import Stage
from operator_process import wait_until

pytestmark = pytest.mark.component

WATCHED = frozenset(
    {"deployments", "replicasets", "controllerrevisions", "pods", "services", "serviceaccounts"}
)


def test_silent_watches_are_made_up_for_by_the_next_full_list_and_end_liveness(
    stage: Stage,
) -> None:
    with stage.start(resync__INTERVAL_SECONDS=1.0, resync__GRACE_SECONDS=0.5) as operator:
        stage.settle()
        stage.proxy.silent = WATCHED
        stage.kubectl("scale", "deployment/smollm2", "--replicas=3")
        stage.kubectl("delete", "service/smollm2")
        stage.expect_undisturbed()
        assert "Watch had not delivered kind=deployments" in operator.log
        assert not operator.is_alive()
        assert operator.metrics().value("errors_total", kind="watch") >= 1


def test_watches_may_be_cut_again_and_again(stage: Stage) -> None:
    with stage.keep_running() as ends:
        stage.apply()
        for _ in range(15):
            time.sleep(0.2)
            stage.proxy.cut_watches()
        stage.wait_ready()
        stage.expect_undisturbed()
    assert ends == [0]


@pytest.mark.parametrize("code", [410, 500], ids=["expired", "etcd is ill"])
def test_what_is_deleted_while_a_watch_begins_anew_is_not_missed(stage: Stage, code: int) -> None:
    """A watch that ends by another error than 410 ends kopf, and with it the process."""
    met: set[str] = set()

    def rule(call: Call) -> Fault | None:
        if not call.is_watch or call.plural in met:
            return None
        met.add(call.plural)
        return end_watch(code)

    constants = {"resync__YOUNG_SECONDS": 0, "resync__GRACE_SECONDS": 0.1, "main__EXIT_SECONDS": 1}
    with stage.keep_running(**constants) as ends:
        stage.settle()
        stage.proxy.go_down()
        stage.proxy.rule = rule
        stage.kubectl("delete", "deployment/smollm2", "service/smollm2", "--wait=false")
        wait_until("They are gone", lambda: not stage.node.list("pods"))
        stage.proxy.come_up()
        stage.expect_undisturbed()
        assert met
    assert (len(ends) > 1) == (code == 500)
