"""Beside others: what is not the operator's own is never touched, whatever it is called and however
it is labelled, and a service whose child's name is taken says so."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from api_server import ApiServer
from kstatus import read_state
from operator_process import OperatorProcess, wait_until
from place import Place, build_service
from played_node import PATHS

pytestmark = pytest.mark.component

USER = "system:serviceaccount:forebay-system:forebay-operator"
SERVICE = build_service(replicas=2)
OURS = {"app.kubernetes.io/managed-by": "forebay", "forebay.dev/inference-service": "smollm2"}
POD = {"containers": [{"name": "c", "image": "theirs"}], "restartPolicy": "Never"}
SELECTOR = {"matchLabels": {"app": "theirs"}}
TEMPLATE = {"metadata": {"labels": {"app": "theirs"}}, "spec": POD}
FOREIGN: dict[str, tuple[str, dict[str, Any]]] = {
    "deployments": (
        "Deployment",
        {
            "spec": {
                "replicas": 0,
                "selector": SELECTOR,
                "template": {**TEMPLATE, "spec": {"containers": POD["containers"]}},
            }
        },
    ),
    "services": ("Service", {"spec": {"selector": {"app": "theirs"}, "ports": [{"port": 1}]}}),
    "serviceaccounts": ("ServiceAccount", {}),
    "controllerrevisions": ("ControllerRevision", {"revision": 1, "data": {"theirs": True}}),
    "jobs": ("Job", {"spec": {"suspend": True, "template": {"spec": POD}}}),
    "poddisruptionbudgets": (
        "PodDisruptionBudget",
        {"spec": {"selector": SELECTOR, "maxUnavailable": 1}},
    ),
}
"""A small object of someone else of each kind of child, by plural."""


@pytest.fixture(scope="module")
def names(operator: OperatorProcess, control_plane: ApiServer) -> dict[str, str]:
    """What the children of SERVICE are called, wherever it is: by plural."""
    control_plane.kubectl("create", "namespace", "g-names")
    place = Place(control_plane, "g-names")
    place.apply(SERVICE)
    place.wait_for("Ready", "True")
    asked = [one for one in control_plane.requests_of(USER) if one["verb"] == "patch"]
    things = [one["objectRef"] for one in asked if one["responseStatus"]["code"] == 201]
    return {one["resource"]: one["name"] for one in things if one["namespace"] == "g-names"}


def build_foreign(plural: str, name: str, **metadata: Any) -> dict[str, Any]:
    kind, body = FOREIGN[plural]
    version = PATHS[plural].removeprefix("/apis/").removeprefix("/api/")
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}, **body}


def test_each_kind_of_child_is_looked_at_here(names: dict[str, str]) -> None:
    assert names.keys() == FOREIGN.keys()


@pytest.mark.parametrize("labels", [{}, OURS], ids=["unlabelled", "with our labels"])
@pytest.mark.parametrize(
    "plurals",
    [{"jobs"}, FOREIGN.keys() - {"jobs"}],
    ids=["what inspects", "what serves"],
)
def test_objects_of_someone_else_keep_their_names(
    operator: OperatorProcess,
    place: Place,
    names: dict[str, str],
    plurals: set[str],
    labels: dict[str, str],
) -> None:
    for plural in plurals:
        place.apply(build_foreign(plural, names[plural], labels=labels))
    place.apply(SERVICE)
    taken = {f"{FOREIGN[plural][0]}/{names[plural]}" for plural in plurals}

    def are_named() -> bool:
        message = place.condition("smollm2", "PodsCreated").get("message", "")
        return all(name in message for name in taken)

    wait_until("All are named", are_named)
    assert place.condition("smollm2", "PodsCreated")["reason"] == "ChildNameTaken"
    assert read_state(place.get("inferenceservices", "smollm2") or {}) == "Failed"
    for plural in plurals:
        assert "forebay" not in managers(place.get(plural, names[plural]) or {}), plural


def managers(item: dict[str, Any]) -> set[str]:
    return {one["manager"] for one in item["metadata"]["managedFields"]}


def test_a_label_of_ours_makes_nothing_ours(operator: OperatorProcess, place: Place) -> None:
    """Objects that somebody labelled like children, for whatever reason, beside a service."""
    for plural in FOREIGN:
        place.apply(build_foreign(plural, "theirs", labels=OURS))
    place.apply(SERVICE)
    place.wait_for("Ready", "True")
    place.apply(build_service(replicas=1))
    place.wait_for("Ready", "True")
    for plural in FOREIGN:
        assert "forebay" not in managers(place.get(plural, "theirs") or {}), plural
    service = place.get("inferenceservices", "smollm2") or {}
    assert service["status"]["readyReplicas"] == 1


KSERVE = "serving.kserve.io"
KSERVE_PATH = f"/apis/{KSERVE}/v1beta1"
OTHERS = {
    "apiVersion": f"{KSERVE}/v1beta1",
    "kind": "InferenceService",
    "metadata": {"name": "smollm2"},
    "spec": {"predictor": {"model": {"modelFormat": {"name": "huggingface"}}}},
}


@pytest.fixture
def kserve(control_plane: ApiServer) -> Iterator[None]:
    """KServe's kind, as far as it matters here."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta1", "served": True, "storage": True, "subresources": {"status": {}}}
    names = {"kind": "InferenceService", "plural": "inferenceservices", "shortNames": ["isvc"]}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"inferenceservices.{KSERVE}"},
        "spec": {
            "group": KSERVE,
            "scope": "Namespaced",
            "names": {**names, "singular": "inferenceservice"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    control_plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(crd))
    control_plane.wait_for_kinds()
    yield
    control_plane.kubectl("delete", "crd", f"inferenceservices.{KSERVE}")


def test_it_runs_beside_kserves_kind_of_the_same_name(
    kserve: None, operator: OperatorProcess, place: Place
) -> None:
    place.apply(OTHERS)
    path = f"{KSERVE_PATH}/namespaces/{place.namespace}/inferenceservices/smollm2"
    theirs = place.server.request("GET", path)[1]
    place.apply(SERVICE)
    place.wait_for("Ready", "True")
    assert place.server.request("GET", path)[1] == theirs
    for ours in ("inferenceservices.forebay.dev", "fisvc"):
        assert place.kubectl("get", ours, "-o", "name") == (
            "inferenceservice.forebay.dev/smollm2\n"
        )
    assert place.kubectl("get", "isvc", "-o", "name") == f"inferenceservice.{KSERVE}/smollm2\n"
    place.kubectl("delete", f"inferenceservices.{KSERVE}", "smollm2")
    assert place.wait_for("Ready", "True")
    asked = place.server.requests_of(USER)
    assert not [one for one in asked if one.get("objectRef", {}).get("apiGroup") == KSERVE]


def test_what_kserve_made_for_its_service_of_the_same_name_is_kserves(
    kserve: None, operator: OperatorProcess, place: Place
) -> None:
    """It makes a Service that is called like its InferenceService."""
    place.apply(OTHERS)
    path = f"{KSERVE_PATH}/namespaces/{place.namespace}/inferenceservices/smollm2"
    owner = place.server.request("GET", path)[1]
    reference = {name: owner[name] for name in ("apiVersion", "kind")} | {
        name: owner["metadata"][name] for name in ("name", "uid")
    }
    owners = [reference | {"controller": True}]
    place.apply(build_foreign("services", "smollm2", ownerReferences=owners))
    place.apply(SERVICE)
    said = place.wait_for("PodsCreated", "False")
    assert said["message"].startswith("Service/smollm2 ")
    assert (place.get("services", "smollm2") or {})["spec"]["selector"] == {"app": "theirs"}
