"""Flux applies folders of InferenceServices with `wait: true`: its Kustomization is Ready exactly
when the service is, and fails when the service is stalled, by kstatus's rules and by the docs'."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_server import ApiServer
from control_plane import add_node, remove_node
from flux import Flux, run_flux
from kstatus import read_state
from operator_process import run_operator, wait_until
from played_node import CHILDREN, PlayedNode
from played_pods import FATE
from recording import Object, Recording, record, version_of

pytestmark = pytest.mark.component

DOCS = yaml.safe_load((Path(__file__).parents[3] / "docs/gitops/flux.yaml").read_text())
CHAPTER = "flux.test/commit"
GONE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "left"}}


@dataclass
class Folder:
    """One namespace that Flux looks after, and what happened in it."""

    flux: Flux
    node: PlayedNode
    services: Recording
    kustomizations: Recording
    revision: str = ""

    def commit(self, *manifests: Object) -> None:
        """Have the repository hold these manifests and nothing else."""
        files = {f"{number}.yaml": one for number, one in enumerate(manifests)}
        self.revision = self.flux.commit(self.node.namespace, files)

    @property
    def path(self) -> str:
        return f"{KUSTOMIZATIONS}/namespaces/{self.node.namespace}/kustomizations"

    def read(self) -> Object:
        """Its Kustomization."""
        item: Object = self.node.server.request("GET", f"{self.path}/models")[1]
        return item

    def wait_for(self, status: str) -> Object:
        """Wait for Flux's verdict on the last commit."""

        def check() -> bool:
            seen = (self.read().get("status") or {}).get("lastAttemptedRevision")
            return seen == self.revision and ready_of(self.read()).get("status") == status

        wait_until(f"{self.node.namespace}: Ready={status}", check, 40)
        return ready_of(self.read())

    def reconcile(self) -> None:
        """Have Flux apply everything once more."""
        name = "reconcile.fluxcd.io/requestedAt"
        patch = {"metadata": {"annotations": {name: "now"}}}
        kind = "application/merge-patch+json"
        self.node.server.request("PATCH", f"{self.path}/models", patch, kind)
        wait_until("It was done", lambda: self.read()["status"].get("lastHandledReconcileAt"))


KUSTOMIZATIONS = "/apis/kustomize.toolkit.fluxcd.io/v1"


def ready_of(item: Object) -> Object:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == "Ready"), {})


def build_service(commit: str, fate: str = "") -> Object:
    annotations = {CHAPTER: commit} | ({FATE: fate} if fate else {})
    spec: Object = {"model": {"uri": "oci://localhost/smollm2:q4_1"}, "device": "CPU"}
    spec["podTemplate"] = {"nodeSelector": {"pool": "flux"}, "annotations": annotations}
    metadata = {"name": "smollm2"}
    kind = {"apiVersion": "forebay.dev/v1alpha1", "kind": "InferenceService"}
    return kind | {"metadata": metadata, "spec": spec}


def build_kustomization(namespace: str, **changes: Any) -> Object:
    """The docs', with less patience."""
    kustomization = copy.deepcopy(DOCS)
    kustomization["metadata"]["namespace"] = namespace
    spec = kustomization["spec"] | {"timeout": "30s", "retryInterval": "1s"} | changes
    spec["targetNamespace"] = namespace
    return kustomization | {"spec": {name: told for name, told in spec.items() if told is not None}}


RULES = {"kstatus": {"healthCheckExprs": None}, "expressions": {}}
"""By which Flux judges: its own, or the ones in the docs."""


@pytest.fixture(scope="module")
def flux(control_plane: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flux]:
    add_node(control_plane, "flux-1", {"pool": "flux"})
    with run_flux(control_plane, tmp_path_factory.mktemp("flux")) as running:
        yield running
    remove_node(control_plane, "flux-1")


@dataclass
class Story:
    """Two folders that go well and two that do not, one of each by either rule."""

    healthy: list[Folder]
    failing: list[Folder]
    before_the_operator: list[Object]
    """The Kustomizations before anybody had looked at the services."""
    refused: list[Object]
    """What Flux says of the failing folders."""
    untouched: list[Object]
    """The services of the healthy folders, scaled by somebody, after Flux applied them again."""

    @property
    def folders(self) -> list[Folder]:
        return [*self.healthy, *self.failing]


@pytest.fixture(scope="module")
def story(flux: Flux, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    names = [f"flux-{fate}-{rule}" for fate in ("healthy", "failing") for rule in RULES]
    for name in names:
        flux.server.kubectl("create", "namespace", name)
    paths = [path for name in names for path in recorded(flux, name)]
    with record(flux.server, *paths) as recordings:
        folders = [
            Folder(flux, PlayedNode(flux.server, name), *recordings[2 * number : 2 * number + 2])
            for number, name in enumerate(names)
        ]
        told = Story(folders[:2], folders[2:], [], [], [])
        begin(told)
        log = tmp_path_factory.mktemp("operator") / "log"
        with run_operator(flux.server.kubeconfig, log):
            go_on(told)
        yield told


def recorded(flux: Flux, namespace: str) -> tuple[str, str]:
    services = PlayedNode(flux.server, namespace).path("inferenceservices")
    return services, f"{KUSTOMIZATIONS}/namespaces/{namespace}/kustomizations"


def begin(story: Story) -> None:
    """Commit everything while no operator runs."""
    for folder in story.folders:
        rule = RULES[folder.node.namespace.rpartition("-")[2]]
        fate = "crash" if folder in story.failing else ""
        folder.commit(build_service("first", fate))
        manifest = build_kustomization(folder.node.namespace, **rule)
        folder.node.server.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))
    for folder in story.folders:
        wait_until("Health checks run", lambda folder=folder: is_checking(folder))
        story.before_the_operator.append(folder.read())


def is_checking(folder: Folder) -> bool:
    conditions = (folder.read().get("status") or {}).get("conditions") or ()
    return any(one["message"].startswith("Running health checks") for one in conditions)


def go_on(story: Story) -> None:
    for folder in story.healthy:
        folder.wait_for("True")
    story.refused += [folder.wait_for("False") for folder in story.failing]
    for folder in story.folders:
        folder.commit(build_service("second"))
    for folder in story.folders:
        folder.wait_for("True")
    for folder in story.healthy:
        node = folder.node
        node.server.kubectl("scale", "-n", node.namespace, "fisvc/smollm2", "--replicas=2")
    for folder in story.healthy:
        folder.reconcile()
        story.untouched.append(folder.node.get("inferenceservices", "smollm2") or {})
        folder.commit(GONE)
    for folder in story.healthy:
        folder.wait_for("True")
        wait_until("Everything went", lambda folder=folder: is_empty(folder.node))


def is_empty(node: PlayedNode) -> bool:
    return not any(node.list(plural) for plural in ("inferenceservices", "deployments", "pods"))


def test_flux_is_ready_exactly_while_the_service_of_its_commit_is(story: Story) -> None:
    """Flux reads before it writes: a service that was Current since its last word may be changed
    again by then."""
    for folder in story.folders:
        words = pairwise(folder.kustomizations.states)
        moments = [(version_of(last), version_of(one)) for last, one in words if is_ready(one)]
        assert moments
        for last, moment in moments:
            for service in folder.services.alive_at(moment):
                assert any(
                    read_state(one) == "Current" and ready_of(one)["status"] == "True"
                    for one in states_between(folder.services, service, last, moment)
                )


def states_between(services: Recording, service: Object, begin: int, end: int) -> list[Object]:
    """What a service was at a version and since then, up to another."""
    states = [*services.alive_at(begin), *services.since(begin)]
    uid = service["metadata"]["uid"]
    return [one for one in states if one["metadata"]["uid"] == uid and version_of(one) <= end]


def is_ready(kustomization: Object) -> bool:
    return ready_of(kustomization).get("status") == "True"


def test_a_service_that_no_operator_has_looked_at_is_waited_for(story: Story) -> None:
    assert len(story.before_the_operator) == 4
    assert all(ready_of(one)["status"] == "Unknown" for one in story.before_the_operator)


def test_a_stalled_service_fails_its_kustomization_before_the_timeout(story: Story) -> None:
    for folder, said in zip(story.failing, story.refused, strict=True):
        assert said["reason"] == "HealthCheckFailed"
        name = f"InferenceService/{folder.node.namespace}/smollm2"
        assert f"failed early due to stalled resources: [{name} status: 'Failed'" in said["message"]


def test_flux_leaves_replicas_to_whoever_set_them(story: Story) -> None:
    assert [one["spec"]["replicas"] for one in story.untouched] == [2, 2]


def test_what_leaves_the_folder_leaves_the_cluster_with_its_children(story: Story) -> None:
    assert all(is_empty(folder.node) for folder in story.healthy)
    assert [bool(folder.services.states[-1].get("deleted")) for folder in story.healthy] == [
        True
    ] * 2


def test_children_are_not_marked_as_fluxs(story: Story) -> None:
    """What carries its labels is pruned by it."""
    for folder in story.failing:
        children = [item for plural in CHILDREN for item in folder.node.list(plural)]
        labels = {label for one in children for label in one["metadata"].get("labels") or ()}
        assert not [label for label in labels if "fluxcd" in label]
