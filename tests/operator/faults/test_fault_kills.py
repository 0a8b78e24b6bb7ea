"""An operator that is killed at every write in turn: the next one goes on, and nothing is done
twice."""

import pytest

from fault_proxy import Call, Fault
from faulted_stage import Stage, is_ended
from operator_process import OperatorProcess, wait_until
from picture import differences, take_picture

pytestmark = pytest.mark.component

MOST_DEATHS = 60
EACH = {
    "serviceaccounts",
    "services",
    "jobs",
    "controllerrevisions",
    "deployments",
    "inferenceservices",
}


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param((True,), id="after the write arrived, before its answer came"),
        pytest.param(
            (False, True), id="before it arrived, and then after it", marks=pytest.mark.long
        ),
    ],
)
def test_an_operator_is_killed_at_each_write(stage: Stage, turns: tuple[bool, ...]) -> None:
    stage.apply()
    killed: list[Call] = []
    while len(killed) < MOST_DEATHS:
        call = kill_at_next_write(stage, turns[len(killed) % len(turns)])
        if call is None:
            break
        killed.append(call)
    stage.proxy.rule = lambda call: None
    with stage.start():
        stage.wait_ready()
        stage.expect_undisturbed()
    assert len(killed) < MOST_DEATHS
    assert {call.plural for call in killed} >= EACH


def kill_at_next_write(stage: Stage, is_delivered: bool) -> Call | None:
    """Run an operator until it dies of its first write; None if it has none to make."""
    running: list[OperatorProcess] = []
    killed: list[Call] = []

    def rule(call: Call) -> Fault | None:
        if not call.is_write:
            return None
        killed.append(call)
        kill = running[0].process.kill
        return Fault(is_delivered=is_delivered, is_answered=False, and_then=kill)

    stage.proxy.rule = rule
    with stage.start() as operator:
        running.append(operator)
        wait_until(
            "It dies, or has nothing to do", lambda: is_ended(operator) or is_undisturbed(stage)
        )
    return killed[0] if killed else None


def is_undisturbed(stage: Stage) -> bool:
    return not differences(take_picture(stage.node), stage.undisturbed)
