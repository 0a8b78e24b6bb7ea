"""One operator under its own account on the control plane, and a place of each test's own."""

from collections.abc import Iterator

import pytest

from api_server import ApiServer
from control_plane import add_node, remove_node
from operator_process import OperatorProcess, run_operator
from place import POOL, Place

NODE = "gitops-1"


@pytest.fixture(scope="module")
def operator(
    control_plane: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """An operator of all namespaces, whose requests the audit log has."""
    add_node(control_plane, NODE, {"pool": POOL})
    token = control_plane.kubectl("create", "token", "forebay-operator", "-n", "forebay-system")
    kubeconfig = control_plane.kubeconfig_with_token("gitops", token.stdout.strip())
    with run_operator(kubeconfig, tmp_path_factory.mktemp("operator") / "log") as running:
        running.wait_for("Lease was acquired")
        yield running
    remove_node(control_plane, NODE)


@pytest.fixture
def place(control_plane: ApiServer, request: pytest.FixtureRequest) -> Place:
    """A namespace of the test's own, on the control plane."""
    name = f"g-{abs(hash(request.node.nodeid)) % 10**10}"
    control_plane.kubectl("create", "namespace", name)
    return Place(control_plane, name)
