"""Rollouts by Kubernetes' own controllers and scheduler, with as many GPUs as a test allows.

What a user of another operator once reported has that report as its name.
"""

from typing import Any

import pytest

from operator_process import wait_until
from played_pods import FATE, GONE_AFTER, READY_AFTER, tell_container
from recording import version_of
from rolled_service import CPU_SPEC, GPU_SPEC, RolledService, is_serving

pytestmark = pytest.mark.component

Roll = Any
SLOW = {"annotations": {READY_AFTER: "1s"}}
BROKEN = {
    "annotations": tell_container(
        state={"waiting": {"reason": "CrashLoopBackOff"}},
        lastState={"terminated": {"exitCode": 1, "message": "No such flag"}},
    )
}


HASH = "forebay.dev/template-hash"


def edit(service: RolledService, number: int, **template: Any) -> None:
    """An edit that renders into the pods."""
    service.edit(engine={"maxNumSeqs": number}, podTemplate=template)


def is_unschedulable(pod: Any) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("reason") == "Unschedulable" for one in conditions)


def surge_pods(service: RolledService, number: int) -> list[str]:
    """The pods of an edit that no node takes."""
    template = service.deployment()["spec"]["template"]
    if f"--max-num-seqs={number}" not in template["spec"]["containers"][0]["args"]:
        return []
    digest = template["metadata"]["labels"][HASH]
    new = [one for one in service.pods() if one["metadata"]["labels"][HASH] == digest]
    return [one["metadata"]["name"] for one in new if is_unschedulable(one)]


def find_no_room(service: RolledService, number: int) -> None:
    """Half a minute passes for the surge pod of an edit."""
    (name,) = wait_until("A pod without a node", lambda: surge_pods(service, number))
    service.let_time_pass("pods", name, "PodScheduled", 31)


def test_the_old_pod_is_killed_before_the_new_one_is_up_though_a_gpu_is_free(roll: Roll) -> None:
    with roll(2) as service:
        service.create(GPU_SPEC, **SLOW)
        service.wait("Ready", "True")
        edit(service, 3, **SLOW)
        service.wait("Ready", "True")
        assert service.fewest_ready(1) == 1
        assert service.num_born() == 2


def test_a_25_percent_rollout_with_one_replica_and_one_gpu_never_ends(roll: Roll) -> None:
    """It does end: the outage is announced first, and only then the old pod goes."""
    with roll(1) as service:
        service.create(GPU_SPEC, annotations={GONE_AFTER: "1s"})
        service.wait("Ready", "True")
        (old,) = service.pods()
        edit(service, 3)
        find_no_room(service, 3)
        message = service.wait("Ready", "False", "Replacing")
        assert "nothing serves between" in message
        service.wait("Ready", "True")
        (event,) = service.events("Replacing")
        assert event["type"] == "Warning"
        uid = old["metadata"]["uid"]
        going = [
            version_of(one)
            for one in service.pods_seen.states
            if one["metadata"]["uid"] == uid and "deletionTimestamp" in one["metadata"]
        ]
        assert version_of(event) < going[0]


def test_a_spec_update_drops_replicas_to_1(roll: Roll) -> None:
    with roll(1) as service:
        service.create({**CPU_SPEC, "scaling": {"minReplicas": 3, "maxReplicas": 4}})
        service.wait("Ready", "True")
        edit(service, 3)
        service.wait("Ready", "True")
        assert service.fewest_ready(3) == 3
        assert service.deployment()["spec"]["replicas"] == 3


def test_three_edits_within_seconds_take_at_most_one_replica_out_of_service(roll: Roll) -> None:
    with roll(1, 1) as service:
        service.create({**GPU_SPEC, "replicas": 2}, **SLOW)
        service.wait("Ready", "True")
        for number in (3, 4, 5):
            edit(service, number, **SLOW)
            find_no_room(service, number)
            service.wait("Ready", "False", "Replacing")
        service.wait("Ready", "True")
        assert service.fewest_ready(2) == 1


def test_an_edit_that_is_taken_back_leaves_the_pods_that_serve(roll: Roll) -> None:
    with roll(3) as service:
        service.create({**GPU_SPEC, "replicas": 2}, annotations={})
        service.wait("Ready", "True")
        before = {one["metadata"]["uid"] for one in service.pods()}
        edit(service, 3, annotations={FATE: "unready"})
        wait_until("A surge pod", lambda: len(service.pods()) == 3)
        service.edit(engine=None, podTemplate={"annotations": None})
        service.wait("Ready", "True")
        wait_until("It goes", lambda: len(service.pods()) == 2)
        assert {one["metadata"]["uid"] for one in service.pods()} == before
        assert service.num_born() == 3


@pytest.mark.parametrize(
    "strategy",
    ["Auto", *(pytest.param(one, marks=pytest.mark.long) for one in ("Surge", "Replace"))],
)
def test_a_fix_rolls_out_over_a_generation_that_never_served(roll: Roll, strategy: str) -> None:
    with roll(1) as service:
        service.create({**GPU_SPEC, "rollout": {"strategy": strategy}}, **BROKEN)
        service.wait("Ready", "False", "ContainerCrashed")
        edit(service, 3, annotations=None)
        service.wait("Ready", "True")
        assert service.num_born() == 2


def test_a_broken_edit_costs_no_pod_that_serves_and_says_why(roll: Roll) -> None:
    """Successful because old pods satisfy the count; Ready while the pod crash-loops."""
    with roll(3) as service:
        service.create({**GPU_SPEC, "replicas": 2})
        service.wait("Ready", "True")
        edit(service, 3, **BROKEN)
        message = service.wait("Ready", "False", "ContainerCrashed")
        assert "No such flag" in message
        assert service.says("Available") == ("True", "ReplicasReady")
        assert service.says("Stalled")[0] == "True"
        assert sum(map(is_serving, service.pods())) == 2
        edit(service, 4, annotations=None)
        service.wait("Ready", "True")
        assert service.fewest_ready(2) == 2


def test_a_quota_for_exactly_the_replicas_does_not_end_a_rollout(roll: Roll) -> None:
    with roll(4) as service:
        hard = {"requests.nvidia.com/gpu": "1"}
        limit(service, hard)
        service.create(GPU_SPEC)
        service.wait("Ready", "True")
        edit(service, 3)
        service.wait("PodsCreated", "False", "QuotaExceeded")
        service.let_time_pass("deployments", "smollm2", "ReplicaFailure", 31)
        wait_until("The outage is announced", lambda: service.events("Replacing"))
        service.wait("Ready", "True")
        assert len(service.events("Replacing")) == 1


def limit(service: RolledService, hard: dict[str, str]) -> None:
    """Give the namespace a quota, and wait until it counts."""
    node = service.node
    path = f"/api/v1/namespaces/{node.namespace}/resourcequotas"
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"}}
    node.server.request("POST", path, {**quota, "spec": {"hard": hard}})

    def counts() -> bool:
        return "hard" in node.server.request("GET", f"{path}/quota")[1].get("status", {})

    wait_until("The quota counts", counts)


def test_nothing_but_an_edit_restarts_a_pod(roll: Roll) -> None:
    with roll(2) as service:
        service.create(GPU_SPEC)
        service.wait("Ready", "True")
        (first,) = service.pods()
        service.edit(replicas=2)
        service.wait("Ready", "True")
        service.edit(rollout={"strategy": "Replace", "progressDeadlineSeconds": 700})
        service.wait("Ready", "True")
        assert first["metadata"]["uid"] in [one["metadata"]["uid"] for one in service.pods()]
        assert service.num_born() == 2
        service.edit(runtimeVersion="v2")
        service.wait("Ready", "True")
        images = {one["spec"]["containers"][0]["image"] for one in service.pods()}
        assert images == {"localhost/forebay-runtime:v2"}
        assert service.num_born() == 4


def test_children_that_were_orphaned_are_told_and_left_alone_and_then_replaced(roll: Roll) -> None:
    with roll(1) as service:
        node = service.node
        service.create(CPU_SPEC)
        service.wait("Ready", "True")
        orphan = ("fisvc/smollm2", "-n", node.namespace, "--cascade=orphan", "--timeout=20s")
        node.server.kubectl("delete", *orphan)
        wait_until(
            "Nobody owns it", lambda: not service.deployment()["metadata"].get("ownerReferences")
        )
        before = service.deployment()["metadata"]["resourceVersion"]
        service.create(CPU_SPEC)

        def names_it() -> bool:
            message = service.wait("Ready", "False", "ChildNameTaken")
            return "Deployment/smollm2" in message and "--cascade=orphan" in message

        wait_until("The Deployment is named once the model is known", names_it)
        assert service.deployment()["metadata"]["resourceVersion"] == before
        left = "deployment,service,serviceaccount,controllerrevision,poddisruptionbudget"
        node.server.kubectl(
            "delete", left, "-n", node.namespace, "-l", "forebay.dev/inference-service"
        )
        service.wait("Ready", "True")


def test_a_rollout_of_a_deployment_that_somebody_paused_is_told_and_goes_on_when_resumed(
    roll: Roll,
) -> None:
    with roll(1) as service:
        service.create(CPU_SPEC)
        service.wait("Ready", "True")
        server, where = service.node.server, ("deployment/smollm2", "-n", service.node.namespace)
        server.kubectl("rollout", "pause", *where)
        edit(service, 3)
        assert "kubectl rollout resume" in service.wait("Stalled", "True", "DeploymentPaused")
        assert service.says("Available") == ("True", "ReplicasReady")
        server.kubectl("rollout", "resume", *where)
        service.wait("Ready", "True")
