"""A control plane with nothing of Forebay in it but what a test installs."""

import json
from collections.abc import Iterator

import pytest

from api_server import ApiServer
from chart import run_helm
from chart_release import Release
from control_plane import add_node, start_control_plane
from operator_process import wait_until


@pytest.fixture(scope="session")
def empty_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with start_control_plane(tmp_path_factory.mktemp("empty-plane"), lambda _: None) as server:
        add_node(server, "played-1")
        yield server


@pytest.fixture
def release(empty_plane: ApiServer) -> Iterator[Release]:
    """A release that is not installed yet; whatever its test installed goes afterwards."""
    yield Release(empty_plane)
    everything = ("list", "--all-namespaces", "--all", "--output=json")
    for one in json.loads(run_helm("--kubeconfig", empty_plane.kubeconfig, *everything)):
        Release(empty_plane, one["name"], one["namespace"]).uninstall()
    if kept := list_definitions(empty_plane):
        empty_plane.kubectl("delete", "--wait=false", *kept)
    wait_until("The CRDs go", lambda: not list_definitions(empty_plane))


def list_definitions(server: ApiServer) -> list[str]:
    """The CRDs of Forebay's group that a server has, as kubectl names them."""
    found = server.kubectl("get", "crd", "-o", "name").stdout.split()
    return [name for name in found if name.endswith(".forebay.dev")]


@pytest.fixture
def team(empty_plane: ApiServer, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    name = f"team-{abs(hash(request.node.nodeid)) % 10**10}"
    empty_plane.kubectl("create", "namespace", name)
    return name
