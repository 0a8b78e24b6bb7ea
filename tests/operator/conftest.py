"""The API servers of the operator's component tests, with the CRDs and the RBAC rules in them.

`api_server` has nothing but the API, and a test plays the rest; `control_plane` has Kubernetes' own
controllers and scheduler, and kwok plays the nodes.
"""

from collections.abc import Iterator

import pytest

from api_server import ApiServer, start_api_server
from chart import install_rights
from control_plane import start_control_plane


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with start_api_server(tmp_path_factory.mktemp("api-server")) as server:
        install_rights(server)
        yield server


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with start_control_plane(tmp_path_factory.mktemp("control-plane"), install_rights) as server:
        yield server


@pytest.fixture
def namespace(api_server: ApiServer, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    name = f"t-{abs(hash(request.node.nodeid)) % 10**10}"
    api_server.kubectl("create", "namespace", name)
    return name
