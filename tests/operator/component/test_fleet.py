"""Many services at once: each child is created once, a status is written thrice at most, and an
operator that starts anew writes nothing. `make bench-operator` has the same with 1,000 and a clock.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from api_server import ApiServer
from audit import Request, count_status_writes, count_writes, most_creates, read_audit
from control_plane import add_node, remove_node
from fleet import SERVICES, Fleet, operate, watching
from operator_process import wait_until

pytestmark = pytest.mark.component

NUM_SERVICES = 40


@pytest.fixture(scope="module")
def fleet(control_plane: ApiServer) -> Iterator[Fleet]:
    add_node(control_plane, "fleet-node")
    yield Fleet(control_plane, NUM_SERVICES, num_namespaces=3, num_replicas=1)
    remove_node(control_plane, "fleet-node")


@pytest.fixture(scope="module")
def started(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> list[Request]:
    """All that an operator asked for while the fleet became Ready; it has ended by now."""
    with operate(fleet.server, tmp_path_factory.mktemp("operator"), "first") as operator:
        with watching(fleet.server, SERVICES, fleet.note):
            fleet.create()
            fleet.wait_until_ready(120)
        operator.wait_until_quiet()
    return asked_for(fleet)


def asked_for(fleet: Fleet) -> list[Request]:
    return [one for one in read_audit(fleet.server) if one.namespace in fleet.namespaces()]


def test_each_child_is_created_once(started: list[Request]) -> None:
    kinds = Counter(one.resource for one in started if one.verb == "create")
    del kinds["events"]
    assert set(kinds.values()) == {NUM_SERVICES}
    assert most_creates(started) == 1


def test_a_start_needs_three_status_writes_at_most(started: list[Request]) -> None:
    assert max(count_status_writes(started)) <= 3


def test_nothing_else_is_written(started: list[Request]) -> None:
    others = {(one.verb, one.resource) for one in count_writes(started) if one.verb != "create"}
    # A Job whose pod has told all is not needed, also where Kubernetes has yet to call it finished.
    assert others - {("delete", "jobs")} == {("patch", "inferenceservices/status")}


def test_no_secret_is_ever_asked_for(started: list[Request], fleet: Fleet) -> None:
    assert "secrets" not in {one.resource for one in read_audit(fleet.server)}


def test_an_operator_that_starts_anew_writes_nothing(
    started: list[Request], fleet: Fleet, tmp_path: Path
) -> None:
    with operate(fleet.server, tmp_path, "second") as operator:
        wait_until("It has looked at all", lambda: operator.num_reconciles() >= NUM_SERVICES)
        operator.wait_until_quiet()
    assert count_writes(asked_for(fleet)) == count_writes(started)
