"""Story: each thing that can be missing or wrong gives one reason and a sentence, and heals."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from claim import Claim
from cluster_api import Object, wait_until
from commands import CommandError
from namespace import Namespace
from served import INSPECTION_LABEL, MODEL_URI, ServedModel, build_service

TOLD_WITHIN_SECONDS = 30
SCRATCH = {
    "volumes": [{"name": "scratch", "emptyDir": {"medium": "Memory"}}],
    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    "resources": {"limits": {"memory": "1600Mi"}},
}
"""A RAM disk, which counts as its pod's memory, and no plan knows what will be written to it."""


@dataclass(frozen=True)
class Failure:
    """What is wrong, how the cluster shows it, what must be said, and what mends it."""

    name: str
    spec: dict[str, Any]
    is_fact: Callable[[Object], bool]
    """Whether a pod shows it."""
    condition: str
    reason: str
    words: tuple[str, ...]
    mend: dict[str, Any] | None
    """A change of the spec; None where the world is mended."""
    provoke: Callable[[ServedModel], None] | None = None
    """What makes it happen, where the spec alone does not."""


def cannot_pull(pod: Object) -> bool:
    """Say whether a pod waits for an image that it will not get."""
    reasons = [entry["state"].get("waiting", {}).get("reason", "") for entry in statuses(pod)]
    return any("Image" in reason for reason in reasons)


def has_failed(pod: Object) -> bool:
    """Say whether a pod's container ended with an error."""
    return any(entry["state"].get("terminated", {}).get("exitCode") for entry in statuses(pod))


def ran_out_of_memory(pod: Object) -> bool:
    """Say whether the kernel killed a pod's container."""
    ends = [
        entry[key].get("terminated", {})
        for entry in statuses(pod)
        for key in ("state", "lastState")
    ]
    return any(end.get("reason") == "OOMKilled" for end in ends)


def fill_scratch(served: ServedModel) -> None:
    """Write to a serving pod's RAM disk until the kernel ends whoever takes most of the memory."""
    served.wait_ready()
    write = ("dd", "if=/dev/zero", "of=/scratch/ballast", "bs=1M", "count=1600")
    with suppress(CommandError):
        served.namespace.kubectl("exec", f"deployment/{served.name}", "--", *write)


def statuses(pod: Object) -> list[Object]:
    """Return the statuses of a pod's containers."""
    found: list[Object] = pod["status"].get("containerStatuses", [])
    return found


FAILURES = (
    Failure(
        "missing-image",
        {"model": {"uri": "oci://localhost/no-such-model:1"}, "replicas": 0},
        cannot_pull,
        "ModelInspected",
        "ImagePullFailed",
        ("localhost/no-such-model:1", "spec.model.uri"),
        {"model": {"uri": MODEL_URI}},
    ),
    Failure(
        "missing-path",
        {"model": {"uri": "pvc://models/late"}, "replicas": 0},
        has_failed,
        "ModelInspected",
        "ModelNotFound",
        ("late",),
        None,
    ),
    Failure(
        "no-model",
        {"model": {"uri": "pvc://models/notes"}, "replicas": 0},
        has_failed,
        "ModelInspected",
        "NotAModel",
        ("notes",),
        {"model": {"uri": MODEL_URI}},
    ),
    Failure(
        "wrong-image",
        {"runtimeVersion": "no-such-version"},
        cannot_pull,
        "Progressing",
        "ImagePullFailed",
        (":no-such-version", "spec.runtimeVersion"),
        {"runtimeVersion": None},
    ),
    Failure(
        "out-of-memory",
        {"podTemplate": SCRATCH},
        ran_out_of_memory,
        "Progressing",
        "OOMKilled",
        ("1600Mi", "limits.memory"),
        {"podTemplate": {"resources": {"limits": {"memory": "2Gi"}}}},
        fill_scratch,
    ),
)


@pytest.fixture(scope="module")
def broken(module_namespace: Namespace) -> Iterator[Claim]:
    """All failures at once, and the claim that two of them look into."""
    claim = Claim(module_namespace)
    claim.create()
    claim.run("mkdir", "/claim/notes")
    claim.run("touch", "/claim/notes/shopping-list.txt")
    module_namespace.apply(*(build_service(case.name, **case.spec) for case in FAILURES))
    yield claim
    claim.remove()


@pytest.mark.parametrize("case", FAILURES, ids=lambda case: case.name)
def test_it_says_why(module_namespace: Namespace, broken: Claim, case: Failure) -> None:
    served = ServedModel(module_namespace, case.name)
    if case.provoke is not None:
        case.provoke(served)
    wait_until(
        lambda: served.pods() + module_namespace.list("pods", f"{INSPECTION_LABEL}={case.name}"),
        lambda pods: any(case.is_fact(pod) for pod in pods),
        f"{case.name}: a pod shows it",
        120,
    )

    told = served.wait_condition(case.condition, "False", case.reason, TOLD_WITHIN_SECONDS)
    ready = served.wait_condition("Ready", "False", case.reason, TOLD_WITHIN_SECONDS)

    assert [word for word in case.words if word not in told["message"]] == [], told["message"]
    assert ready["message"] == told["message"]
    wait_until(
        lambda: sorted(reasons_of_events(served)),
        lambda reasons: case.reason in reasons,
        "an Event tells the reason too",
        TOLD_WITHIN_SECONDS,
    )


def reasons_of_events(served: ServedModel) -> set[str]:
    """Return the reasons of the Events that `kubectl describe` shows for a service."""
    return {
        event["reason"]
        for event in served.namespace.list("events")
        if event["involvedObject"].get("uid") == served.read()["metadata"]["uid"]
    }


def test_it_heals_when_mended(module_namespace: Namespace, broken: Claim) -> None:
    broken.run("cp", "-r", "/smollm2", "/claim/late")
    for case in FAILURES:
        if case.mend is not None:
            ServedModel(module_namespace, case.name).patch({"spec": case.mend})

    for case in FAILURES:
        service = ServedModel(module_namespace, case.name).wait_ready(300)
        kinds = {found["type"] for found in service["status"]["conditions"]}
        assert not kinds & {"Stalled", "Reconciling"}, case.name
