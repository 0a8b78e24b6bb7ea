"""One API server for all component tests of the operator, with the CRD and the RBAC rules in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from api_server import ApiServer, start_api_server

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with start_api_server(tmp_path_factory.mktemp("api-server")) as server:
        server.kubectl("apply", "-f", str(ROOT / "crds"))
        server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        server.kubectl("create", "namespace", "forebay-system")
        server.kubectl("apply", "-f", str(ROOT / "charts" / "forebay" / "base" / "rbac.yaml"))
        yield server


@pytest.fixture
def namespace(api_server: ApiServer, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    name = f"t-{abs(hash(request.node.nodeid)) % 10**10}"
    api_server.kubectl("create", "namespace", name)
    return name
