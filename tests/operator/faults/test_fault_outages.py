"""An API server that is away, for shorter and for longer than a lease lasts."""

import time

import pytest

from faulted_stage import Stage
from operator_process import wait_until

pytestmark = pytest.mark.component


def test_a_short_outage_ends_no_operator(stage: Stage) -> None:
    with stage.keep_running() as ends:
        stage.settle()
        stage.proxy.go_down()
        stage.kubectl("scale", "deployment/smollm2", "--replicas=1")
        time.sleep(3)
        stage.proxy.come_up()
        stage.expect_undisturbed()
    assert ends == [0]


def test_a_partition_longer_than_the_lease_ends_the_operator_and_its_successor_goes_on(
    stage: Stage,
) -> None:
    short = {"DURATION": 4, "DEADLINE": 2.5, "LAST_WRITE": 3.5, "RENEW": 0.5}
    constants = {f"lease__{name}_SECONDS": value for name, value in short.items()}
    with stage.keep_running(**constants, kubernetes_cluster__LEASE_TIMEOUT_SECONDS=1.0) as ends:
        stage.settle()
        stage.proxy.set_reachable(False)
        stage.kubectl("delete", "service/smollm2", "deployment/smollm2")
        wait_until("It ends", lambda: ends)
        stage.proxy.set_reachable(True)
        stage.expect_undisturbed()
    assert ends[-1] == 0


@pytest.mark.long
def test_a_minute_of_partition_is_made_up_for(stage: Stage) -> None:
    with stage.keep_running():
        stage.settle()
        stage.proxy.set_reachable(False)
        stage.kubectl("delete", "service/smollm2", "deployment/smollm2")
        time.sleep(60)
        stage.proxy.set_reachable(True)
        stage.expect_undisturbed()
