"""One service's whole life on a real control plane, every state of it recorded: whatever reads it,
kstatus or Argo CD, is told the truth at every moment, and its owner's fields stay its owner's."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pytest

from api_server import ApiServer
from argo_health import read_health
from control_plane import add_node, remove_node
from kstatus import read_state
from operator_process import run_operator, wait_until
from played_node import CHILDREN, PlayedNode
from played_pods import FATE, READY_AFTER
from recording import Object, Recording, record, version_of

pytestmark = pytest.mark.component

QUIET_SECONDS = 0.6
"""How long nothing happens before a chapter is over."""
USER = "system:serviceaccount:forebay-system:forebay-operator"
CHAPTER = "life.test/chapter"
"""An annotation of the pods: which edit they belong to."""
SPEC: dict[str, Any] = {
    "model": {"uri": "oci://localhost/smollm2:q4_1"},
    "device": "CPU",
    "replicas": 2,
    "podTemplate": {"nodeSelector": {"pool": "life"}},
}


@dataclass
class Life:
    """What was recorded, and where each chapter begins."""

    node: PlayedNode
    services: Recording
    pods: Recording
    began: dict[str, int] = field(default_factory=dict)

    def tell(self, name: str, act: Callable[[], object], is_over: Callable[[], object]) -> None:
        """Do something and wait for what comes of it, until nothing happens any more."""
        self.began[name] = max((version_of(one) for one in self.services.states), default=0)
        act()
        wait_until(name, is_over)
        self._rest()

    def chapter(self, name: str) -> list[Object]:
        """The service's states in a chapter."""
        following = list(self.began.values())[list(self.began).index(name) + 1 :]
        states = self.services.since(self.began[name])
        return [one for one in states if not following or version_of(one) <= following[0]]

    def edit(self, chapter: str, **spec: Any) -> None:
        """Change the spec; its pods will carry the chapter's name, unless that is empty."""
        patch: dict[str, Any] = {"spec": spec}
        if chapter:
            template = {"annotations": {CHAPTER: chapter, FATE: None, READY_AFTER: "300ms"}}
            given = spec.pop("podTemplate", {})
            annotations = template["annotations"] | given.pop("annotations", {})
            spec["podTemplate"] = given | {"annotations": annotations}
        path = self.node.path("inferenceservices", "smollm2")
        kind = "application/merge-patch+json"
        status, answer = self.node.server.request("PATCH", path, patch, kind)
        if status != 200:
            raise RuntimeError(answer["message"])

    def says(self, kind: str, status: str, reason: str = "") -> Callable[[], bool]:
        """Whether a condition of the present generation says something."""

        def check() -> bool:
            service = self.node.get("inferenceservices", "smollm2") or {"metadata": {}}
            found = self.node.condition("smollm2", kind)
            is_now = found.get("observedGeneration") == service["metadata"].get("generation")
            is_it = found.get("status") == status and reason in ("", found.get("reason"))
            return is_now and is_it

        return check

    def _rest(self) -> None:
        known = -1
        while known != len(self.services.states):
            known = len(self.services.states)
            time.sleep(QUIET_SECONDS)


STORY: dict[str, tuple[list[str], list[str]]] = {
    "birth": (["InProgress", "Current"], ["Progressing", "Healthy"]),
    "another model": (["InProgress", "Current"], ["Progressing", "Healthy"]),
    "a crash": (["InProgress", "Failed"], ["Progressing", "Degraded"]),
    "its mending": (["InProgress", "Current"], ["Progressing", "Healthy"]),
    "nowhere to run": (["InProgress"], ["Progressing"]),
    "a node comes": (["InProgress", "Current"], ["Progressing", "Healthy"]),
    "too small a budget": (["InProgress", "Failed"], ["Progressing", "Degraded"]),
    "enough again": (["InProgress", "Current"], ["Progressing", "Healthy"]),
    "what no pod sees": (["InProgress", "Current"], ["Progressing", "Healthy"]),
    "scaled to zero": (["InProgress", "Current"], ["Progressing", "Healthy"]),
}
"""By chapter: what kstatus and Argo CD make of it, each once, in this order."""


@pytest.fixture(scope="module")
def life(control_plane: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    node = PlayedNode(control_plane, "gitops-life")
    control_plane.kubectl("create", "namespace", node.namespace)
    add_node(control_plane, "life-1", {"pool": "life"})
    token = control_plane.kubectl("create", "token", "forebay-operator", "-n", "forebay-system")
    kubeconfig = control_plane.kubeconfig_with_token("life", token.stdout.strip())
    paths = (node.path("inferenceservices"), node.path("pods"))
    with run_operator(kubeconfig, tmp_path_factory.mktemp("life") / "log") as operator:
        operator.wait_for("Lease was acquired")
        with record(control_plane, *paths) as (services, pods):
            lived = Life(node, services, pods)
            live(lived, node)
            yield lived
    remove_node(control_plane, "life-1")
    remove_node(control_plane, "life-2")


def live(life: Life, node: PlayedNode) -> None:
    ready = life.says("Ready", "True")
    annotations = {CHAPTER: "birth", READY_AFTER: "300ms"}
    template = SPEC["podTemplate"] | {"annotations": annotations}
    manifest = {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "smollm2", "labels": {"team": "a"}, "annotations": {"note": "mine"}},
        "spec": SPEC | {"podTemplate": template},
    }
    life.tell("birth", lambda: node.create("inferenceservices", manifest), ready)
    other = {"uri": "oci://localhost/other:1"}
    life.tell("another model", lambda: life.edit("another model", model=other), ready)
    crash = {"annotations": {FATE: "crash"}}
    crashed = life.says("Ready", "False", "ContainerCrashed")
    life.tell("a crash", lambda: life.edit("a crash", podTemplate=crash), crashed)
    life.tell("its mending", lambda: life.edit("its mending"), ready)
    elsewhere = {"nodeSelector": {"pool": "elsewhere"}}
    lost = life.says("Ready", "False", "Unschedulable")
    life.tell("nowhere to run", lambda: life.edit("nowhere to run", podTemplate=elsewhere), lost)
    life.tell("a node comes", lambda: add_node(node.server, "life-2", {"pool": "elsewhere"}), ready)
    small, enough = {"budget": "1Mi"}, {"budget": "16Gi"}
    unfit = life.says("Fits", "False")
    life.tell("too small a budget", lambda: life.edit("", vram=small), unfit)
    life.tell("enough again", lambda: life.edit("enough again", vram=enough), ready)
    deadline = {"progressDeadlineSeconds": 900}
    life.tell("what no pod sees", lambda: life.edit("", rollout=deadline), ready)
    zero = life.says("Ready", "True", "ScaledToZero")
    life.tell("scaled to zero", lambda: life.edit("", replicas=0), zero)
    path = node.path("inferenceservices", "smollm2")
    life.tell("the end", lambda: node.server.request("DELETE", path), lambda: is_empty(node))


def is_empty(node: PlayedNode) -> bool:
    left = [item for plural in (*CHILDREN, "pods") for item in node.list(plural)]
    return [one["metadata"]["name"] for one in left] == ["default"]  # everybody's account


def once_each(found: list[str]) -> list[str]:
    return [name for name, _ in groupby(found)]


@pytest.mark.parametrize("chapter", STORY)
def test_kstatus_and_argo_cd_read_each_chapter_aright(life: Life, chapter: str) -> None:
    states = life.chapter(chapter)
    told = [explain(state) for state in states]
    assert once_each([read_state(one) for one in states]) == STORY[chapter][0], told
    assert once_each([read_health(one)[0] for one in states]) == STORY[chapter][1], told


def explain(state: Object) -> dict[str, str]:
    conditions = (state.get("status") or {}).get("conditions") or ()
    return {one["type"]: f"{one['status']} {one['reason']} {one['message']}" for one in conditions}


def test_it_is_current_only_while_just_the_pods_of_this_spec_serve(life: Life) -> None:
    moments = [one for one in life.services.states if read_state(one) == "Current"]
    assert len(moments) > 5
    for state in moments:
        wanted = state["spec"]["podTemplate"]["annotations"][CHAPTER]
        alive = life.pods.alive_at(version_of(state))
        serving = [one["metadata"]["annotations"][CHAPTER] for one in alive if is_serving(one)]
        assert serving == [wanted] * state["spec"]["replicas"]


def is_serving(pod: Object) -> bool:
    """Whether a serving pod is there to stay; an inspection's pod never is."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return is_ready and "deletionTimestamp" not in pod["metadata"]


def test_while_a_rollout_is_stuck_what_serves_is_still_told(life: Life) -> None:
    for chapter in ("a crash", "nowhere to run", "too small a budget"):
        last = life.chapter(chapter)[-1]
        assert explain(last)["Available"].startswith("True ReplicasReady")
        assert last["status"]["readyReplicas"] == 2


def test_argo_cd_does_not_show_progressing_for_ever(life: Life) -> None:
    """A failure that needs a person is Degraded, with the sentence that tells that person what to
    do; no replicas, when none are wanted, is Healthy."""
    health, message = read_health(life.chapter("a crash")[-1])
    assert health == "Degraded"
    assert "exited with code 1: it crashed" in message
    health, message = read_health(life.chapter("too small a budget")[-1])
    assert health == "Degraded"
    assert "it would fit with vram.budget" in message
    assert read_health(life.chapter("scaled to zero")[-1])[0] == "Healthy"


def test_what_its_owner_wrote_stays_as_it_was(life: Life) -> None:
    for state in life.services.states:
        metadata = state["metadata"]
        assert (metadata["labels"], metadata["annotations"]) == ({"team": "a"}, {"note": "mine"})
        assert "finalizers" not in metadata
        ours = [one for one in metadata["managedFields"] if one["manager"] == "forebay"]
        assert all((one["operation"], one["subresource"]) == ("Apply", "status") for one in ours)
        assert all(set(one["fieldsV1"]) == {"f:status"} for one in ours)
    generations = {state["metadata"]["generation"] for state in life.services.states}
    edits = STORY.keys() - {"birth", "a node comes"}
    assert max(generations) == 1 + len(edits)


def test_nothing_holds_up_its_end(life: Life) -> None:
    """There is no finalizer, so deleting it is one step, and its children are collected."""
    (last,) = life.chapter("the end")
    assert last["deleted"]


def test_the_operator_writes_by_server_side_apply_as_one_manager(life: Life) -> None:
    asked = life.node.server.requests_of(USER)
    mine = [one for one in asked if one.get("objectRef", {}).get("namespace") == "gitops-life"]
    writes = [one for one in mine if one["verb"] not in ("get", "list", "watch")]
    assert {one["verb"] for one in writes} == {"patch", "delete", "create"}
    for one in writes:
        assert one["verb"] == "delete" or "fieldManager=forebay" in one["requestURI"]
        assert one["verb"] != "create" or one["objectRef"]["resource"] == "events"
        if one["objectRef"]["resource"] == "inferenceservices":
            assert (one["verb"], one["objectRef"]["subresource"]) == ("patch", "status")
