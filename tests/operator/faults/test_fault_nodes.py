"""A node that vanishes with its pods: the service says so, and others take their place."""

import pytest

from control_plane import add_node, remove_node
from faulted_stage import Stage
from operator_process import wait_until

pytestmark = pytest.mark.component


def test_pods_of_a_vanished_node_are_replaced(stage: Stage) -> None:
    server, name = stage.node.server, stage.node.namespace
    with stage.start():
        stage.settle()
        remove_node(server, name)
        stage.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
        wait_until(
            "The pods wait for a node",
            lambda: stage.node.condition("smollm2", "Ready").get("reason") == "Unschedulable",
        )
        add_node(server, name)
        stage.expect_undisturbed()
