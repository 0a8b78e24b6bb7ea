"""Two installations, each for namespaces of its own: neither sees, writes or waits for what is the
other's."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from api_server import ApiServer
from chart import render_rights
from control_plane import add_node, remove_node
from operator_process import run_operator
from place import POOL, Place, build_service

pytestmark = pytest.mark.component

TEAMS = ("red", "blue")


@pytest.fixture
def places(control_plane: ApiServer, tmp_path: Path) -> Iterator[dict[str, Place]]:
    """Each team's namespace, with an operator of its own that may do nothing elsewhere."""
    add_node(control_plane, "two-1", {"pool": POOL})
    with ExitStack() as stack:
        for team in TEAMS:
            system = f"forebay-{team}"
            for name in (system, team):
                control_plane.kubectl("create", "namespace", name)
            watched = f'watch.namespaces=["{team}"]'
            rights = render_rights(watched, release=system, namespace=system)
            control_plane.kubectl("apply", "-f", "-", stdin=rights)
            token = control_plane.kubectl("create", "token", f"{system}-operator", "-n", system)
            access = control_plane.kubeconfig_with_token(team, token.stdout.strip())
            place = {"namespaces": (team,), "lease_namespace": system}
            operator = run_operator(access, tmp_path / team, name=system, **place)
            stack.enter_context(operator).wait_for("Lease was acquired")
        yield {team: Place(control_plane, team) for team in TEAMS}
    remove_node(control_plane, "two-1")


def test_two_installations_do_not_disturb_each_other(places: dict[str, Place]) -> None:
    for place in places.values():
        place.apply(build_service())
    for place in places.values():
        place.wait_for("Ready", "True")
    for team, place in places.items():
        user = f"system:serviceaccount:forebay-{team}:forebay-{team}-operator"
        asked = [one for one in place.server.requests_of(user) if "objectRef" in one]
        assert {one["objectRef"].get("namespace") for one in asked} <= {
            team,
            f"forebay-{team}",
            None,
        }
        assert [one for one in asked if one["responseStatus"]["code"] == 403] == []
