"""A namespace that goes while a service starts in it, and comes back."""

import pytest

from faulted_stage import Stage
from operator_process import wait_until

pytestmark = pytest.mark.component


def test_a_namespace_that_is_deleted_in_the_middle_may_come_back(stage: Stage) -> None:
    stage.lease_namespace = "forebay-system"
    server, name = stage.node.server, stage.node.namespace
    with stage.start() as operator:
        stage.apply()
        wait_until("A Job", lambda: stage.node.list("jobs"))
        server.kubectl("delete", "namespace", name, "--wait=false")
        path = f"/api/v1/namespaces/{name}"
        wait_until("The namespace is gone", lambda: server.request("GET", path)[0] == 404)
        num_writes = len(stage.proxy.writes)
        server.kubectl("create", "namespace", name)
        stage.settle()
        assert num_writes < 30
        assert "Reconcile failed" not in operator.log
