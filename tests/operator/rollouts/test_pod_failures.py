"""Every way in which a pod can fail to be, by Kubernetes' own words, in one namespace at once: a
reason and a sentence each; and what is mended is seen within ten seconds.

What a user of another operator once reported has that report as its name.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from api_server import ApiServer
from control_plane import add_node, remove_node
from operator_process import OperatorProcess, wait_until
from played_pods import FATE, tell_container
from rolled_service import CPU_SPEC, GPU_SPEC, MERGE, RolledService, rolled_service

pytestmark = pytest.mark.component

SETTLE_SECONDS = 2
CLAIM = {"name": "extra", "persistentVolumeClaim": {"claimName": "nowhere"}}
AN_HOUR = {"startedAt": "2099-01-01T00:00:00Z", "finishedAt": "2099-01-01T01:00:00Z"}
"""A run that began after its pod was born."""


def crash(exit_code: int, message: str = "", **more: Any) -> dict[str, Any]:
    """A template whose pods are in a crash loop."""
    ended = {"exitCode": exit_code, "message": message, "reason": "Error", **more}
    told = tell_container(
        state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting"}},
        lastState={"terminated": ended},
    )
    return {"annotations": told}


def wait_for(reason: str, message: str) -> dict[str, Any]:
    """A template whose pods wait."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {"annotations": tell_container(state=state, restartCount=0)}


FAILURES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "no-gpu": (
        {**GPU_SPEC, "engine": {"tensorParallelSize": 3}},
        {},
        "Unschedulable",
        "which asks for cpu 100m, nvidia.com/gpu 3: 0/",
    ),
    "no-claim": (
        CPU_SPEC,
        {"volumes": [CLAIM]},
        "VolumeClaimNotFound",
        "PersistentVolumeClaim nowhere does not exist",
    ),
    "no-class": (
        CPU_SPEC,
        {"priorityClassName": "urgent"},
        "PriorityClassNotFound",
        "no PriorityClass with name urgent was found; correct spec.podTemplate.priorityClassName",
    ),
    "no-image": (
        CPU_SPEC,
        {"annotations": {FATE: "image"}},
        "ImagePullFailed",
        "Image localhost/forebay-runtime:test could not be pulled",
    ),
    "no-secret": (
        CPU_SPEC,
        wait_for("CreateContainerConfigError", 'secret "s" not found'),
        "ContainerConfigError",
        'secret "s" not found; create what is missing',
    ),
    "no-command": (
        CPU_SPEC,
        crash(128, "exec: forebay: not found", reason="StartError"),
        "ContainerNotStarted",
        "exec: forebay: not found",
    ),
    "host-memory": (
        CPU_SPEC,
        crash(137, reason="OOMKilled"),
        "OOMKilled",
        "was killed at its memory limit of",
    ),
    "gpu-memory": (
        GPU_SPEC,
        crash(1, "Too little memory (CUDA out of memory. Tried to allocate 2 GiB)"),
        "GPUOutOfMemory",
        "ran out of its GPU's memory: Too little memory (CUDA out of memory.",
    ),
    "crash": (
        CPU_SPEC,
        crash(1, "Loading\nConfig was refused error='no such rope'"),
        "ContainerCrashed",
        "exited with code 1: Config was refused error='no such rope'.",
    ),
    "slow": (
        CPU_SPEC,
        crash(143, **AN_HOUR),
        "StartupTimedOut",
        "was not ready within spec.startup.timeoutSeconds (1800) and is restarted",
    ),
    "probe": (
        CPU_SPEC,
        {"annotations": {FATE: "unready"}},
        "NotReady",
        "started but is not ready",
    ),
}


@pytest.fixture(scope="module")
def refused(control_plane: ApiServer, operator: OperatorProcess) -> Iterator[RolledService]:
    """A service in a namespace whose quota takes no pod."""
    with rolled_service(control_plane, "refused", 1) as service:
        limit_pods(service, "0")
        service.create(CPU_SPEC)
        yield service


@pytest.fixture(scope="module")
def home(control_plane: ApiServer, refused: RolledService) -> Iterator[RolledService]:
    """A namespace in which all fail at once."""
    with rolled_service(control_plane, "failures", 3, 3) as first:
        for number in range(2):
            first.node.create("pods", hog(f"failures-{number}"))
        for name, (spec, template, _, _) in FAILURES.items():
            first.another(name).create(spec, **template)
        yield first


def hog(node: str) -> dict[str, Any]:
    """Somebody else's pod, which holds a GPU of a node."""
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "hog", "image": "hog", "resources": resources}
    spec = {"containers": [container], "nodeName": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"hog-{node}"}, "spec": spec}


def limit_pods(service: RolledService, most: str) -> None:
    """Set the namespace's quota, and wait until it counts."""
    node, spec = service.node, {"hard": {"pods": most}}
    path = f"/api/v1/namespaces/{node.namespace}/resourcequotas"
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"}}
    if node.server.request("POST", path, {**quota, "spec": spec})[0] != 201:
        node.server.request("PATCH", f"{path}/quota", {"spec": spec}, MERGE)

    def counts() -> bool:
        status = node.server.request("GET", f"{path}/quota")[1].get("status") or {}
        return bool(status.get("hard") == spec["hard"])

    wait_until("The quota counts", counts)


@pytest.mark.parametrize("name", FAILURES)
def test_a_pod_that_does_not_serve_has_one_reason_and_one_sentence(
    home: RolledService, name: str
) -> None:
    service = home.another(name)
    _, _, reason, sentence = FAILURES[name]
    assert sentence in service.wait("Ready", "False", reason)
    assert service.says("Available") == ("False", "NoReplicaReady")


def test_no_sentence_changes_while_nothing_does(home: RolledService) -> None:
    names = [name for name in FAILURES if name not in ("no-class", "probe")]
    told = {name: home.another(name).status() for name in names}
    time.sleep(SETTLE_SECONDS)
    assert {name: home.another(name).status() for name in names} == told


def test_creating_for_ever_when_no_gpu_is_free(home: RolledService) -> None:
    """It says what there is too little of, and serves once a node has it."""
    service = home.another("no-gpu")
    message = service.wait("Reconciling", "True", "Unschedulable")
    assert "2 nodes that it may use offer nvidia.com/gpu, 6 in all, at most 3 each, and" in message
    assert service.says("PodsCreated") == ("True", "PodsCreated")
    add_node(home.node.server, "big", {"pool": home.node.namespace}, nvidia_com__gpu="3")
    try:
        service.wait("Ready", "True")
    finally:
        remove_node(home.node.server, "big")


def test_what_was_refused_is_tried_again_soon_after_it_would_be_taken(home: RolledService) -> None:
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    service = home.another("no-class")
    service.wait("PodsCreated", "False", "PriorityClassNotFound")
    home.node.server.request("POST", path, priority)
    service.wait("Ready", "True")


def test_a_person_who_mended_the_cause_has_the_pod_tried_at_once(home: RolledService) -> None:
    service = home.another("crash")
    service.wait("Ready", "False", "ContainerCrashed")
    (old,) = service.pods()
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    annotation = {"metadata": {"annotations": {"forebay.dev/try-again-at": moment}}}
    home.node.server.request("PATCH", service.path, annotation, MERGE)
    gone = old["metadata"]["uid"]
    wait_until(
        "A fresh pod",
        lambda: [one for one in service.pods() if one["metadata"]["uid"] != gone],
    )
    assert len(service.events("PodReplaced")) == 1
    service.wait("Ready", "False", "ContainerCrashed")
    time.sleep(SETTLE_SECONDS)
    assert service.num_born() == 2


def test_a_right_that_the_operator_lacks_is_told_and_used_once_it_is_granted(
    home: RolledService,
) -> None:
    server = home.node.server
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/forebay-operator"
    role = server.request("GET", path)[1]
    rules = [rule for rule in role["rules"] if "services" not in rule["resources"]]
    service = home.another("no-right")
    server.request("PATCH", path, {"rules": rules}, MERGE)
    try:
        service.create(CPU_SPEC)
        message = service.wait("Ready", "False", "Forbidden")
        assert "the operator lacks this right" in message
    finally:
        server.request("PATCH", path, {"rules": role["rules"]}, MERGE)
    service.wait("Ready", "True")


def test_quota_rejects_the_pod_and_only_a_replica_set_event_knows(refused: RolledService) -> None:
    """The service knows, and has its pod soon after the quota was raised."""
    message = refused.wait("Ready", "False", "QuotaExceeded")
    assert "exceeded quota: quota" in message and "ResourceQuota" in message
    limit_pods(refused, "5")
    refused.wait("Ready", "True")


def test_nothing_went_wrong_on_the_way(operator: OperatorProcess, home: RolledService) -> None:
    assert "Traceback" not in operator.log
    assert "ERROR" not in operator.log
