"""An operator under its own account on the control plane, and services with nodes of their own."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from api_server import ApiServer
from operator_process import OperatorProcess, run_operator
from rolled_service import RolledService, rolled_service

Roll = Callable[..., AbstractContextManager[RolledService]]


@pytest.fixture(scope="module")
def operator(
    control_plane: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    token = control_plane.kubectl("create", "token", "forebay-operator", "-n", "forebay-system")
    kubeconfig = control_plane.kubeconfig_with_token("rollouts", token.stdout.strip())
    with run_operator(kubeconfig, tmp_path_factory.mktemp("operator") / "log") as running:
        running.wait_for("Lease was acquired")
        yield running


@pytest.fixture
def roll(
    control_plane: ApiServer, operator: OperatorProcess, request: pytest.FixtureRequest
) -> Roll:
    """Give the test a service; its arguments are the GPUs of each of its nodes."""
    namespace = f"r-{abs(hash(request.node.nodeid)) % 10**10}"

    def roll_one(*gpus: int, **resources: str) -> AbstractContextManager[RolledService]:
        return rolled_service(control_plane, namespace, *gpus, **resources)

    return roll_one
