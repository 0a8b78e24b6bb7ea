"""The stages of the stories, and the picture of the one in which nothing goes wrong."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from control_plane import add_node
from fault_proxy import FaultProxy
from faulted_stage import USER, Stage, build_stage
from operator_process import wait_until
from picture import take_picture


@pytest.fixture(scope="session")
def faulted_plane(control_plane: ApiServer) -> ApiServer:
    """The control plane with a node, and an account for operators that a proxy leads astray."""
    control_plane.kubectl("create", "serviceaccount", USER)
    control_plane.kubectl(
        "create",
        "clusterrolebinding",
        USER,
        "--clusterrole=cluster-admin",
        f"--serviceaccount=default:{USER}",
    )
    add_node(control_plane, "faulted-1")
    return control_plane


@pytest.fixture(scope="session")
def undisturbed(
    faulted_plane: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The picture of a service that nothing befell."""
    folder = tmp_path_factory.mktemp("undisturbed")
    proxy = FaultProxy(faulted_plane.url, faulted_plane.folder)
    with proxy.running():
        stage = build_stage(faulted_plane, "undisturbed", proxy, folder)
        with stage.start():
            stage.apply()
            stage.wait_ready()
            taken = take_picture(stage.node)
            wait_until("Quiet", lambda: take_picture(stage.node) == taken)
            return taken


@pytest.fixture
def stage(
    faulted_plane: ApiServer,
    undisturbed: dict[str, Any],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Stage]:
    proxy = FaultProxy(faulted_plane.url, faulted_plane.folder)
    with proxy.running():
        name = f"t-{abs(hash(request.node.nodeid)) % 10**10}"
        stage = build_stage(faulted_plane, name, proxy, tmp_path)
        stage.undisturbed = undisturbed
        yield stage
