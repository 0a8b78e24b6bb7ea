"""The stages of the stories, and the picture of the one in which nothing goes wrong."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from control_plane import add_node, remove_node
from fault_proxy import FaultProxy
from faulted_stage import Stage, build_stage, create_account
from operator_process import wait_until
from picture import take_picture


@pytest.fixture(scope="session")
def faulted_plane(control_plane: ApiServer) -> ApiServer:
    """The control plane with an account for operators that a proxy leads astray."""
    create_account(control_plane)
    return control_plane


@pytest.fixture(scope="session")
def undisturbed(
    faulted_plane: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The picture of a service that nothing befell."""
    folder = tmp_path_factory.mktemp("undisturbed")
    proxy = FaultProxy(faulted_plane.url, faulted_plane.folder)
    with proxy.running(), played_node(faulted_plane, "undisturbed"):
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
    name = f"t-{abs(hash(request.node.nodeid)) % 10**10}"
    with proxy.running(), played_node(faulted_plane, name):
        stage = build_stage(faulted_plane, name, proxy, tmp_path)
        stage.undisturbed = undisturbed
        yield stage
        faulted_plane.kubectl("delete", "namespace", name, "--wait=false")


@contextmanager
def played_node(server: ApiServer, name: str) -> Iterator[None]:
    """A node that is there as long as a story lasts: other tests count theirs."""
    add_node(server, name)
    yield
    remove_node(server, name)
