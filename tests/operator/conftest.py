"""The API servers of the operator's component tests, with the CRDs and the RBAC rules in them.

`api_server` has nothing but the API, and a test plays the rest; `control_plane` has Kubernetes' own
controllers and scheduler, and kwok plays the nodes.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from api_server import ApiServer, start_api_server
from chart import render_rights
from control_plane import start_control_plane

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with start_api_server(tmp_path_factory.mktemp("api-server")) as server:
        _install(server)
        yield server


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with start_control_plane(tmp_path_factory.mktemp("control-plane")) as server:
        _install(server)
        yield server


@pytest.fixture
def namespace(api_server: ApiServer, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    name = f"t-{abs(hash(request.node.nodeid)) % 10**10}"
    api_server.kubectl("create", "namespace", name)
    return name


def _install(server: ApiServer) -> None:
    server.kubectl("apply", "-f", str(ROOT / "crds"))
    server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    server.kubectl("create", "namespace", "forebay-system")
    server.kubectl("apply", "-f", "-", stdin=render_rights())
