"""Whatever keeps a pod from serving is one reason and one sentence, and gone when it is mended."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from observed_builder import (
    NOW,
    child,
    condition,
    condition_of,
    says,
    service,
    terminated,
    unschedulable,
    waiting,
    warning,
)
from toy_cluster import ToyCluster, settled

IMAGE = "reg.test/runtime:v1"
BACK_OFF = f'Back-off pulling image "{IMAGE}"'
FULL = (
    "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. no new claims to deallocate, "
    "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
)
SAID = "Config was refused error='rope scaling yarn is not known'"


def container(**status: Any) -> dict[str, Any]:
    """A pod's status whose container is in some state."""
    return {"phase": "Pending", "containerStatuses": [{"name": "runtime"} | status]}


def crashed(**last: Any) -> dict[str, Any]:
    state = waiting("CrashLoopBackOff", "back-off 10s restarting failed container")
    return container(state=state, lastState=terminated(**last))


def unready(since: float) -> dict[str, Any]:
    running = container(started=True, state={"running": {}})
    return running | {"conditions": [condition("Ready", "False", since=since)]}


def written(pod: dict[str, Any], at: datetime) -> dict[str, Any]:
    """The pod, with the time at which its status was written last."""
    entry = {"subresource": "status", "time": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return pod | {"metadata": pod["metadata"] | {"managedFields": [entry]}}


EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}


def slow(seconds: int, exit_code: int = 143) -> dict[str, Any]:
    """A container that ran for some time and was started again."""
    ended = {"exitCode": exit_code, "startedAt": "2026-01-01T11:00:00Z"}
    ended["finishedAt"] = f"2026-01-01T11:{seconds // 60:02}:{seconds % 60:02}Z"
    return container(state={"running": {}}, lastState={"terminated": ended})


def served(status: dict[str, Any]) -> dict[str, Any]:
    """The same of a pod that was ready in between: it became unready after that run began."""
    unready = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T11:00:50Z"}
    return status | {"conditions": [unready]}


CUDA = (
    "forebay serve: There is too little memory for the KV cache; lower --max-num-seqs (CUDA out "
    "of memory. Tried to allocate 2.00 GiB)"
)
NO_SHIM = "failed to create shim task: exec: forebay: executable file not found in $PATH"


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "no node has room": (
        {},
        unschedulable(FULL),
        "Unschedulable",
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu; add or free such a node",
    ),
    "a claim is not bound": (
        {},
        unschedulable("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."),
        "VolumeClaimUnbound",
        "see kubectl describe pvc",
    ),
    "a claim of the template is missing": (
        {},
        unschedulable('0/1 nodes are available: persistentvolumeclaim "extra" not found.'),
        "VolumeClaimNotFound",
        "PersistentVolumeClaim extra does not exist in namespace team-a; create it, or correct "
        "spec.podTemplate.volumes.",
    ),
    "the pinned version does not exist": (
        {"runtimeVersion": "v1"},
        container(state=waiting("ErrImagePull", f'failed to resolve "{IMAGE}": not found')),
        "ImagePullFailed",
        f'Image {IMAGE} could not be pulled: failed to resolve "{IMAGE}": not found; correct '
        "spec.runtimeVersion (v1)",
    ),
    "the default image does not exist": (
        {},
        container(
            state=waiting("ImagePullBackOff", f'Back-off pulling image "{IMAGE}": not found')
        ),
        "ImagePullFailed",
        f"Image {IMAGE} could not be pulled: not found; the platform team names it",
    ),
    "the image's name is none": (
        {},
        container(state=waiting("InvalidImageName", f"couldn't parse {IMAGE}")),
        "InvalidImageName",
        f"couldn't parse {IMAGE}",
    ),
    "the model's image does not exist": (
        {},
        container(state=waiting("ErrImagePull", "reg.test/smollm2:q4: not found")),
        "ImagePullFailed",
        "The model's image reg.test/smollm2:q4 could not be pulled",
    ),
    "a secret is missing": (
        {},
        container(state=waiting("CreateContainerConfigError", 'secret "s" not found')),
        "ContainerConfigError",
        'secret "s" not found; create what is missing',
    ),
    "the container cannot be created": (
        {},
        container(state=waiting("CreateContainerError", "ImageVolumeMountFailed: no such layer")),
        "ContainerNotStarted",
        "ImageVolumeMountFailed: no such layer",
    ),
    "out of memory under the plan's limit": (
        {"vram": {"budget": "3Gi"}},
        container(state=terminated(137, reason="OOMKilled")),
        "OOMKilled",
        "at its memory limit of 3Gi; raise spec.vram.budget",
    ),
    "out of memory under the template's limit": (
        {"podTemplate": {"resources": {"limits": {"memory": "3Gi"}}}},
        crashed(exit_code=137, reason="OOMKilled"),
        "OOMKilled",
        "at its memory limit of 3Gi; raise spec.podTemplate.resources.limits.memory.",
    ),
    "out of memory and running again": (
        {},
        container(state={"running": {}}, lastState=terminated(137, reason="OOMKilled")),
        "OOMKilled",
        "raise spec.vram.budget",
    ),
    "a crash with last words": (
        {},
        crashed(message=f"Loading\n{SAID}\n"),
        "ContainerCrashed",
        f"exited with code 1: {SAID}.",
    ),
    "a crash without last words": (
        {},
        crashed(),
        "ContainerCrashed",
        "it left no last words, see kubectl logs --previous",
    ),
    "a crash before the back-off": (
        {},
        container(state=terminated(message=SAID)),
        "ContainerCrashed",
        SAID,
    ),
    "a start that takes too long": (
        {"startup": {"timeoutSeconds": 60}},
        slow(61),
        "StartupTimedOut",
        "not ready within spec.startup.timeoutSeconds (60)",
    ),
    "a crash after serving for longer than a start may take": (
        {"startup": {"timeoutSeconds": 60}},
        served(slow(61, exit_code=1)),
        "ContainerCrashed",
        "exited with code 1: it left no last words",
    ),
    "out of a GPU's memory": (
        {},
        crashed(message=f"Loading\n{CUDA}\n"),
        "GPUOutOfMemory",
        "ran out of its GPU's memory: forebay serve: There is too little memory for the KV cache",
    ),
    "a command that is not there": (
        {},
        container(
            state=waiting("RunContainerError", "failed to start container 5f3a"),
            lastState=terminated(128, NO_SHIM, "StartError"),
        ),
        "ContainerNotStarted",
        NO_SHIM,
    ),
    "a command that is not there, backed off": (
        {},
        crashed(exit_code=128, message=NO_SHIM, reason="StartError"),
        "ContainerNotStarted",
        NO_SHIM,
    ),
    "a gate before scheduling": (
        {},
        {"conditions": [condition("PodScheduled", "False", "SchedulingGated")]},
        "SchedulingGated",
        "is held back by the scheduling gates",
    ),
    "a pod that is not ready any more": (
        {},
        unready(since=-10),
        "NotReady",
        "its readiness probe fails",
    ),
    "an eviction": (
        {},
        EVICTED,
        "Evicted",
        "The node was low on memory.",
    ),
    "an eviction that killed its container": (
        {},
        container(state=terminated(137)) | EVICTED,
        "Evicted",
        "was ended by its node: The node was low on memory.",
    ),
    "not ready any more, and out of memory once before": (
        {},
        unready(since=-10) | container(started=True, lastState=terminated(137, reason="OOMKilled")),
        "NotReady",
        "its readiness probe fails",
    ),
}


@pytest.mark.parametrize(("spec", "status", "reason", "sentence"), CASES.values(), ids=CASES)
def test_a_pod_that_does_not_serve_is_explained(
    spec: dict[str, Any], status: dict[str, Any], reason: str, sentence: str
) -> None:
    cluster = settled(**spec)
    cluster.befall(status)
    decided = cluster.decide()
    for condition_type in ("Ready", "Progressing"):
        assert says(decided, condition_type) == ("False", reason)
        assert sentence in condition_of(decided, condition_type)["message"]
    assert says(decided, "Available") == ("False", "NoReplicaReady")


@pytest.mark.parametrize("status", [one[1] for one in CASES.values()], ids=CASES)
def test_a_pod_that_serves_again_is_no_longer_explained(status: dict[str, Any]) -> None:
    cluster = settled()
    healthy = cluster.pods[0]["status"]
    cluster.befall(status)
    cluster.carry_out(cluster.decide())
    cluster.befall(healthy)
    decided = cluster.decide()
    assert says(decided, "Ready") == ("True", "AllReplicasReady")
    assert not condition_of(decided, "Stalled") and not condition_of(decided, "Reconciling")


@pytest.mark.parametrize(
    "status",
    [
        container(state=waiting("ContainerCreating")),
        container(state={"running": {}}, started=False),
        unready(since=1),
        {},
    ],
    ids=["being created", "loading", "just unready", "just born"],
)
def test_a_pod_on_its_way_is_no_failure(status: dict[str, Any]) -> None:
    cluster = settled()
    cluster.befall(status)
    decided = cluster.decide()
    assert says(decided, "Ready") == ("False", "Starting")
    assert says(decided, "Progressing") == ("True", "Starting")
    assert says(decided, "Reconciling") == ("True", "Starting")


@pytest.mark.parametrize("told_seconds_ago", [1, 11], ids=["just started", "for long"])
def test_a_pod_that_is_unready_from_birth_has_time_from_its_start_on(told_seconds_ago: int) -> None:
    cluster = settled()
    cluster.befall(unready(since=-60))
    cluster.pods[0] = written(cluster.pods[0], cluster.now - timedelta(seconds=told_seconds_ago))
    uid = cluster.pods[0]["metadata"]["uid"]
    cluster.warnings = (warning("Unhealthy", "Startup probe failed: statuscode: 503", uid),)
    decided = cluster.decide()
    reason = "Starting" if told_seconds_ago < 10 else "NotReady"
    assert says(decided, "Ready") == ("False", reason)
    assert "Startup" not in condition_of(decided, "Ready")["message"]


def test_a_pod_that_is_just_unready_is_looked_at_again() -> None:
    cluster = settled()
    cluster.befall(unready(since=(cluster.now - NOW).total_seconds() - 4))
    assert cluster.decide().look_again_seconds == pytest.approx(6)


@pytest.mark.parametrize(
    ("reason", "message", "told"),
    [
        ("FailedMount", "MountVolume.SetUp failed: timed out", "VolumeMountFailed"),
        ("FailedAttachVolume", "Multi-Attach error", "VolumeMountFailed"),
        ("FailedCreatePodSandBox", "no runtime for nvidia", "PodSandboxFailed"),
    ],
    ids=["a mount", "an attachment", "a sandbox"],
)
def test_what_only_events_know_is_told(reason: str, message: str, told: str) -> None:
    cluster = settled()
    cluster.befall(container(state=waiting("ContainerCreating")))
    cluster.warnings = (warning(reason, message, cluster.pods[0]["metadata"]["uid"]),)
    decided = cluster.decide()
    assert says(decided, "Ready") == ("False", told)
    assert message in condition_of(decided, "Ready")["message"]


def test_a_pod_that_the_kubelet_restarted_for_its_liveness_is_told_so() -> None:
    cluster = settled()
    cluster.befall(served(slow(55, exit_code=137)))
    uid = cluster.pods[0]["metadata"]["uid"]
    cluster.warnings = (
        warning("Unhealthy", "Liveness probe failed: HTTP statuscode: 503", uid),
        warning("Unhealthy", "Startup probe failed: connection refused", uid),
    )
    decided = cluster.decide()
    assert says(decided, "Ready") == ("False", "LivenessProbeFailed")
    assert "HTTP statuscode: 503" in condition_of(decided, "Ready")["message"]


@pytest.mark.parametrize("probe", ["Startup", "Readiness"])
def test_probes_that_fail_while_a_pod_starts_are_no_failure_and_no_event(probe: str) -> None:
    cluster = settled()
    cluster.befall(container(state={"running": {}}, started=False) | {"phase": "Running"})
    cluster.carry_out(cluster.decide())
    uid = cluster.pods[0]["metadata"]["uid"]
    cluster.warnings = (warning("Unhealthy", f"{probe} probe failed: connection refused", uid),)
    decided = cluster.decide()
    assert says(decided, "Ready") == ("False", "Starting")
    assert decided.notes == ()


def test_a_pod_on_a_node_that_went_silent_is_told_so() -> None:
    cluster = settled()
    cluster.befall(unready(since=-60))
    cluster.pods[0]["spec"] = cluster.pods[0]["spec"] | {"nodeName": "gpu-1"}
    lost = {"conditions": [condition("Ready", "Unknown")]}
    cluster.nodes = ({"metadata": {"name": "gpu-1"}, "status": lost},)
    decided = cluster.decide()
    assert says(decided, "Ready") == ("False", "NodeLost")
    assert "Node gpu-1" in condition_of(decided, "Ready")["message"]


def gpus(name: str, amount: str, **labels: str) -> dict[str, Any]:
    offered = {"allocatable": {"nvidia.com/gpu": amount, "cpu": "8", "memory": "32Gi"}}
    return {"metadata": {"name": name, "labels": labels}, "status": offered}


AFFINE = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["3"]}]}
                ]
            }
        }
    }
}
SUPPLY: dict[str, tuple[dict[str, Any], tuple[Any, ...], str]] = {
    "nodes without one": (
        {},
        (gpus("a", "0"), {"metadata": {"name": "b"}, "status": {}}),
        "3 Insufficient nvidia.com/gpu; no node that it may use offers nvidia.com/gpu; add or free",
    ),
    "nodes with too few each": (
        {},
        (gpus("a", "1"), gpus("b", "2"), gpus("c", "1")),
        "3 nodes that it may use offer nvidia.com/gpu, but at most 2 each",
    ),
    "nodes with enough that others hold": (
        {},
        (gpus("a", "4"), gpus("b", "4")),
        "2 nodes that it may use offer nvidia.com/gpu, 8 in all, at most 4 each, and too little "
        "of it is free",
    ),
    "nodes that the selector leaves out": (
        {"podTemplate": {"nodeSelector": {"pool": "a100"}}},
        (gpus("a", "4", pool="a100"), gpus("b", "8", pool="h100")),
        "1 node that it may use offers nvidia.com/gpu, 4 in all, at most 4 each",
    ),
    "nodes that the affinity leaves out": (
        {"podTemplate": AFFINE},
        (gpus("a", "4", gen="3"), gpus("b", "2", gen="4")),
        "1 node that it may use offers nvidia.com/gpu, but at most 2 each",
    ),
}


@pytest.mark.parametrize(("spec", "nodes", "sentence"), SUPPLY.values(), ids=SUPPLY)
def test_a_pod_without_a_node_says_how_many_there_are_of_what_it_asks(
    spec: dict[str, Any], nodes: tuple[Any, ...], sentence: str
) -> None:
    cluster = settled(
        device="GPU", vram={"gpuMemory": "80Gi"}, engine={"tensorParallelSize": 3}, **spec
    )
    cluster.nodes = nodes
    cluster.befall(unschedulable(FULL))
    message = condition_of(cluster.decide(), "Ready")["message"]
    assert "which asks for cpu 100m, nvidia.com/gpu 3: 0/3 nodes are available" in message
    assert sentence in message


def test_other_resources_are_counted_too() -> None:
    cluster = settled(vram={"budget": "64Gi"})
    cluster.nodes = (gpus("a", "0"),)
    cluster.befall(unschedulable("0/1 nodes are available: 1 Insufficient memory."))
    message = condition_of(cluster.decide(), "Ready")["message"]
    assert "1 node that it may use offers memory, but at most 32Gi each" in message


def test_a_bare_back_off_borrows_its_words_from_the_event() -> None:
    cluster = settled()
    cluster.befall(container(state=waiting("ImagePullBackOff", BACK_OFF)))
    uid = cluster.pods[0]["metadata"]["uid"]
    cluster.warnings = (warning("Failed", f'Failed to pull image "{IMAGE}": no such host', uid),)
    assert "no such host" in condition_of(cluster.decide(), "Ready")["message"]


def test_pulling_and_backing_off_are_told_in_one_sentence() -> None:
    cluster = settled()
    messages = []
    for reason, message in (
        ("ErrImagePull", f"{IMAGE}: not found"),
        ("ImagePullBackOff", f'Back-off pulling image "{IMAGE}": ErrImagePull: {IMAGE}: not found'),
    ):
        cluster.befall(container(state=waiting(reason, message)))
        messages.append(condition_of(cluster.decide(), "Ready")["message"])
    assert messages[0] == messages[1]


CRASH_LOOP = waiting("CrashLoopBackOff")


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (unschedulable(FULL), "Reconciling"),
        (EVICTED, "Reconciling"),
        (container(state=terminated(137, reason="OOMKilled")), "Stalled"),
        (container(state=terminated()), "Reconciling"),
        (container(restartCount=1, state={"running": {}}, lastState=terminated()), "Reconciling"),
        (container(restartCount=1, state=CRASH_LOOP, lastState=terminated()), "Stalled"),
        (container(restartCount=2, state={"running": {}}, lastState=terminated()), "Stalled"),
    ],
    ids=[
        "what may pass by itself is being reconciled",
        "what a node ended is tried on another",
        "what needs a person is stalled",
        "one crash may have been bad luck",
        "it is while the next try goes on",
        "a second crash is a loop",
        "a loop stays one while it tries again",
    ],
)
def test_failures_are_told_to_kstatus(cause: dict[str, Any], kind: str) -> None:
    cluster = settled()
    cluster.befall(cause)
    decided = cluster.decide()
    other = {"Reconciling": "Stalled", "Stalled": "Reconciling"}[kind]
    assert says(decided, kind)[0] == "True" and not condition_of(decided, other)


def test_an_eviction_that_was_made_good_long_ago_is_not_told_again() -> None:
    """The evicted pod's object stays for as long as Kubernetes keeps it."""
    cluster = settled()
    cluster.pods.append({**cluster.pods[0], "status": EVICTED})
    cluster.pods[0] = {**cluster.pods[0], "metadata": cluster.pods[0]["metadata"] | LATER}
    cluster.change(replicas=2)
    decided = cluster.decide()
    assert says(decided, "Progressing") == ("True", "Scaling")
    assert not condition_of(decided, "Stalled")


LATER = {"creationTimestamp": "2026-01-01T13:00:00Z", "name": "successor", "uid": "successor"}


def deployment_says(cluster: ToyCluster, *conditions: dict[str, Any]) -> None:
    place = ("Deployment", "smollm2")
    deployment = cluster.children[place]
    status = deployment["status"] | {"conditions": list(conditions), "readyReplicas": 0}
    cluster.children[place] = deployment | {"status": status}


QUOTA = 'pods "smollm2-7c9-x" is forbidden: exceeded quota: small, requested: memory=2Gi, used: 0'


def test_a_refused_pod_is_told() -> None:
    cluster = settled()
    deployment_says(cluster, condition("ReplicaFailure", "True", "FailedCreate", message=QUOTA))
    decided = cluster.decide()
    assert says(decided, "PodsCreated") == ("False", "QuotaExceeded")
    assert says(decided, "Ready") == ("False", "QuotaExceeded")
    assert QUOTA in condition_of(decided, "Ready")["message"]


def test_a_replica_set_is_woken_only_while_its_pods_are_refused() -> None:
    cluster = settled()
    refused = condition("ReplicaFailure", "True", "FailedCreate", message=QUOTA)
    deployment_says(cluster, refused)
    deployment = child(cluster.decide(), "Deployment")
    assert deployment is not None and deployment["metadata"]["annotations"]
    deployment_says(cluster)
    deployment = child(cluster.decide(), "Deployment")
    assert deployment is not None and "annotations" not in deployment["metadata"]


def test_what_was_refused_of_an_older_spec_is_not_told_of_the_new_one() -> None:
    cluster = settled()
    deployment_says(cluster, condition("ReplicaFailure", "True", "FailedCreate", message=QUOTA))
    cluster.change(engine={"maxNumSeqs": 3})
    assert says(cluster.decide(), "Ready") == ("False", "RollingOut")


def test_a_deadline_that_passed_stalls_what_would_be_transient() -> None:
    cluster = settled()
    cluster.befall(unschedulable(FULL))
    deployment_says(cluster, condition("Progressing", "False", "ProgressDeadlineExceeded"))
    assert says(cluster.decide(), "Stalled") == ("True", "Unschedulable")


def test_a_deadline_that_passed_without_another_cause_is_told() -> None:
    cluster = settled(rollout={"progressDeadlineSeconds": 77})
    deployment_says(cluster, condition("Progressing", "False", "ProgressDeadlineExceeded"))
    decided = cluster.decide()
    assert says(decided, "Progressing") == ("False", "ProgressDeadlineExceeded")
    assert "77 seconds" in condition_of(decided, "Progressing")["message"]


REFUSALS = {
    "a quota": (QUOTA, "QuotaExceeded"),
    "a quota that wants resources named": (
        'pods "x" is forbidden: failed quota: q: must specify cpu for: runtime',
        "QuotaExceeded",
    ),
    "pod security": (
        'pods "x" is forbidden: violates PodSecurity "restricted:latest": volumes',
        "PodSecurityViolated",
    ),
    "a webhook that is down": (
        'Internal error occurred: failed calling webhook "w.test": connection refused',
        "WebhookFailed",
    ),
    "a webhook that hangs": ("Deployment llama was not answered in time", "APIServerSlow"),
    "an object of megabytes": ("Request entity too large: limit is 3145728", "ObjectTooLarge"),
    "a webhook": ('admission webhook "w.test" denied the request: no', "AdmissionDenied"),
    "a policy": (
        "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
        "AdmissionDenied",
    ),
    "a limit range": (
        "maximum memory usage per Container is 1Gi, but limit is 2Gi",
        "LimitRangeViolated",
    ),
    "missing rights": (
        'deployments.apps is forbidden: User "system:serviceaccount:x" cannot patch',
        "Forbidden",
    ),
    "a missing priority class": (
        "no PriorityClass with name high was found",
        "PriorityClassNotFound",
    ),
    "image volumes that are off": (
        "spec.template.spec.volumes[1]: Required value: must specify a volume type",
        "ImageVolumesDisabled",
    ),
    "a value that the schema cannot know to be wrong": (
        'Deployment smollm2 was refused: Deployment.apps "smollm2" is invalid: '
        'spec.template.labels: Invalid value: "a b"',
        "ChildInvalid",
    ),
    "a namespace that goes": (
        'pods "x" is forbidden: unable to create new content in namespace team-a because it is '
        "being terminated",
        "NamespaceTerminating",
    ),
    "anything else": ("the server is on fire", "ApplyFailed"),
}


@pytest.mark.parametrize(("sentence", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_what_the_api_server_refuses_is_told_and_tried_again(sentence: str, reason: str) -> None:
    cluster = ToyCluster(service())
    cluster.apply_error = sentence
    decided = cluster.decide()
    assert says(decided, "PodsCreated") == ("False", reason)
    assert says(decided, "Ready") == ("False", reason)
    assert decided.look_again_seconds is not None


def test_a_childs_name_that_is_taken_is_told() -> None:
    cluster = settled()
    cluster.foreign = ("Service/smollm2",)
    decided = cluster.decide()
    assert says(decided, "Ready") == ("False", "ChildNameTaken")
    assert says(decided, "Stalled") == ("True", "ChildNameTaken")
    assert "Service/smollm2" in condition_of(decided, "Ready")["message"]


def test_children_that_a_deleted_service_left_behind_are_told_as_such() -> None:
    cluster = settled()
    cluster.foreign = cluster.orphans = ("Service/smollm2", "Deployment/smollm2")
    message = condition_of(cluster.decide(), "Ready")["message"]
    assert "were left behind" in message and "--cascade=orphan" in message
    cluster.foreign = cluster.orphans = ("Service/smollm2",)
    message = condition_of(cluster.decide(), "Ready")["message"]
    assert "was left behind" in message and "delete it," in message
