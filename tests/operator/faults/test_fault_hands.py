"""Hands in the operator's own objects: what is deleted comes back, what is changed is put right."""

import pytest

from faulted_stage import Stage
from operator_process import wait_until

pytestmark = pytest.mark.component

LABEL = "app.kubernetes.io/managed-by"


def test_each_kind_of_child_comes_back(stage: Stage) -> None:
    with stage.start():
        stage.settle()
        for kind in ("service", "serviceaccount", "controllerrevision", "replicaset", "pod"):
            delete_all(stage, kind)
            stage.expect_undisturbed()
        stage.kubectl("delete", "deployment,replicaset,pod", "--all", "--cascade=orphan")
        stage.expect_undisturbed()


def test_an_inspection_whose_job_or_pod_is_deleted_begins_anew(stage: Stage) -> None:
    held = {"scheduling.test/held": "yes"}
    with stage.start():
        stage.apply(podTemplate={"nodeSelector": held})
        job = wait_until("A Job", lambda: stage.node.list("jobs"))[0]
        stage.kubectl("delete", "job", job["metadata"]["name"], "--wait=false")
        stage.apply()
        stage.wait_ready()
        stage.expect_undisturbed()


def test_each_kind_of_child_is_put_right(stage: Stage) -> None:
    with stage.start():
        stage.settle()
        stage.kubectl("scale", "deployment/smollm2", "--replicas=5")
        kinds = "deployment,service,serviceaccount,controllerrevision"
        stage.kubectl("label", kinds, "--all", f"{LABEL}-")
        ports = '{"spec": {"ports": [{"port": 80, "name": "http", "targetPort": 9}]}}'
        stage.kubectl("patch", "service/smollm2", "-p", ports)
        stage.kubectl(
            "patch",
            "fisvc/smollm2",
            "--subresource=status",
            "--type=merge",
            "-p",
            '{"status": {"conditions": [], "replicas": 9}}',
        )
        stage.expect_undisturbed()


def delete_all(stage: Stage, kind: str) -> None:
    """Delete all objects of a kind, and wait until they are gone."""
    gone = uids(stage, f"{kind}s")
    stage.kubectl("delete", kind, "--all", "--wait=false")
    wait_until(f"No old {kind}s", lambda: not gone & uids(stage, f"{kind}s"))


def uids(stage: Stage, plural: str) -> set[str]:
    return {
        item["metadata"]["uid"]
        for item in stage.node.list(plural)
        if item["metadata"]["name"] != "default"
    }
