"""What a person with kubectl sees: no difference where nothing is to be done, no write where
nothing changed, no old Ready after an edit, and what others wrote on children kept."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from api_server import ApiServer
from argo_health import SCRIPTS, read_health
from kstatus import read_state
from operator_process import OperatorProcess, wait_until
from place import Place, build_service

pytestmark = pytest.mark.component

USER = "system:serviceaccount:forebay-system:forebay-operator"
WAYS = [(), ("--server-side",)]
RICH = build_service(
    engine={
        "maxModelLen": 2048,
        "extraArgs": ["--stream-interval=8"],
    },
    vram={"budget": "16Gi"},
    startup={"timeoutSeconds": 600},
    rollout={"strategy": "Auto"},
    podTemplate={
        "labels": {"team": "a"},
        "nodeSelector": {"pool": "gitops"},
        "resources": {"requests": {"cpu": 2}, "limits": {"memory": "32Gi"}},
        "env": [{"name": "OMP_NUM_THREADS", "value": "2"}],
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    },
)
"""With values that a server might write otherwise than they were written."""


@pytest.mark.parametrize("way", WAYS, ids=["client-side", "server-side"])
def test_after_apply_there_is_no_difference_and_the_same_manifest_again_writes_nothing(
    operator: OperatorProcess, place: Place, way: tuple[str, ...]
) -> None:
    place.apply(RICH, *way)
    place.wait_for("Ready", "True")
    assert place.kubectl("diff", "-f", "-", *way, stdin=place.text(RICH)) == ""
    before, asked = place.get("inferenceservices", "smollm2"), count_writes(place)
    for _ in range(2):
        place.apply(RICH, *way)
    poke(place)
    assert place.get("inferenceservices", "smollm2") == before
    assert count_writes(place) == asked


def poke(place: Place) -> None:
    """Have the operator look at another service of the namespace, and so past this one."""
    place.apply(build_service("later", podTemplate={"nodeSelector": {"pool": "none"}}))
    wait_until("A later service is seen", lambda: place.condition("later", "Ready"))


def count_writes(place: Place) -> int:
    """The operator's, of the service `smollm2` and its children."""
    asked = place.server.requests_of(USER)
    mine = [one["objectRef"] for one in asked if one["verb"] not in ("get", "list", "watch")]
    names = [one.get("name", "") for one in mine if one.get("namespace") == place.namespace]
    return sum(name.startswith("smollm2") for name in names)


@contextmanager
def held_up(operator: OperatorProcess) -> Iterator[None]:
    """The operator hangs while the block runs."""
    operator.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        operator.process.send_signal(signal.SIGCONT)


def test_an_old_ready_does_not_count_after_an_edit(operator: OperatorProcess, place: Place) -> None:
    place.apply(build_service())
    place.wait_for("Ready", "True")
    wait = ("wait", "--for=condition=Ready", "fisvc/smollm2")
    with held_up(operator):
        place.apply(build_service(engine={"maxModelLen": 1024}))
        stale: dict[str, Any] = place.get("inferenceservices", "smollm2") or {}
        assert "timed out" in place.kubectl(*wait, "--timeout=1s", check=False)
    assert [one["status"] for one in stale["status"]["conditions"] if one["type"] == "Ready"] == [
        "True"
    ]
    assert (read_state(stale), read_health(stale)[0]) == ("InProgress", "Progressing")
    assert "condition met" in place.kubectl(*wait, "--timeout=20s")
    assert place.get("inferenceservices", "smollm2")["status"]["plan"]["maxModelLen"] == 1024


def test_what_nobody_has_looked_at_is_in_progress(operator: OperatorProcess, place: Place) -> None:
    with held_up(operator):
        place.apply(build_service())
        fresh: dict[str, Any] = place.get("inferenceservices", "smollm2") or {}
    assert fresh["status"] == {"observedGeneration": -1}
    assert (read_state(fresh), read_health(fresh)[0]) == ("InProgress", "Progressing")


def test_a_quota_is_in_progress_until_it_was_looked_at_and_healthy_from_then_on(
    operator: OperatorProcess, place: Place
) -> None:
    kind = {"apiVersion": "forebay.dev/v1alpha1", "kind": "VRAMQuota"}
    quota = kind | {"metadata": {"name": "gpus"}, "spec": {"budget": "80Gi"}}
    with held_up(operator):
        place.apply(quota)
        fresh: dict[str, Any] = place.get("vramquotas", "gpus") or {}
    assert (read_state(fresh), read_health(fresh)[0]) == ("InProgress", "Progressing")
    wait = ("wait", "--for=condition=WithinBudget", "vramquotas/gpus", "--timeout=20s")
    assert "condition met" in place.kubectl(*wait)
    seen: dict[str, Any] = place.get("vramquotas", "gpus") or {}
    assert (read_state(seen), read_health(seen)[0]) == ("Current", "Healthy")
    assert read_health(seen)[1]


def test_the_docs_patch_leaves_argo_cds_other_settings_alone(control_plane: ApiServer) -> None:
    control_plane.kubectl("create", "namespace", "argocd")
    mine = ("-n", "argocd", "configmap", "argocd-cm")
    control_plane.kubectl("create", *mine, "--from-literal=url=https://argocd.test")
    control_plane.kubectl("patch", *mine, "--patch-file", str(SCRIPTS))
    data = json.loads(control_plane.kubectl("get", *mine, "-o", "json").stdout)["data"]
    health = "resource.customizations.health.forebay.dev"
    assert data.keys() == {"url", f"{health}_InferenceService", f"{health}_VRAMQuota"}


THEIRS = {"app.kubernetes.io/instance": "argo-app", "sidecar.istio.io/inject": "true"}
ANNOTATIONS = {"argocd.argoproj.io/tracking-id": "argo-app:x", "linkerd.io/inject": "enabled"}


def test_what_others_write_on_children_stays(operator: OperatorProcess, place: Place) -> None:
    place.apply(build_service(replicas=2))
    place.wait_for("Ready", "True")
    children = place.children()
    for child in children:
        place.kubectl("label", child, *pairs(THEIRS))
        place.kubectl("annotate", child, *pairs(ANNOTATIONS))
    place.apply(build_service(replicas=2, engine={"maxModelLen": 1024}))
    place.wait_for("Ready", "True")
    for child in children.keys() & place.children().keys():
        metadata = place.children()[child]["metadata"]
        assert metadata["labels"].items() >= THEIRS.items(), child
        assert metadata["annotations"].items() >= ANNOTATIONS.items(), child


def pairs(written: dict[str, str]) -> list[str]:
    return [f"{name}={text}" for name, text in written.items()]


def test_a_restart_that_a_person_asks_for_is_carried_out_once(
    operator: OperatorProcess, place: Place
) -> None:
    place.apply(build_service())
    place.wait_for("Ready", "True")
    before = {pod["metadata"]["uid"] for pod in serving(place)}
    place.kubectl("rollout", "restart", "deployment/smollm2")
    place.kubectl("rollout", "status", "deployment/smollm2", "--timeout=20s")
    place.wait_for("Ready", "True")
    poke(place)
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in serving(place))
    assert len({pod["metadata"]["labels"]["pod-template-hash"] for pod in serving(place)}) == 1
    assert (place.get("deployments", "smollm2") or {})["metadata"]["generation"] == 2


def serving(place: Place) -> list[dict[str, Any]]:
    pods = [pod for pod in place.list("pods") if pod["metadata"]["name"].startswith("smollm2-")]
    return [pod for pod in pods if pod["status"]["phase"] == "Running"]


def test_every_child_has_the_operator_as_its_one_applier(
    operator: OperatorProcess, place: Place, control_plane: ApiServer
) -> None:
    place.apply(build_service(replicas=2))
    place.wait_for("Ready", "True")
    managers = {"forebay", "kube-controller-manager"}
    for name, child in place.children().items():
        applied = [one for one in child["metadata"]["managedFields"] if one["operation"] == "Apply"]
        assert [one["manager"] for one in applied] == ["forebay"], name
        assert {one["manager"] for one in child["metadata"]["managedFields"]} <= managers, name
