"""Pods on a node whose end is announced get their successors before they go.

The Deployment gets one pod more for each of them. Once enough pods are ready elsewhere it shrinks
again, and the doomed pods cost least. Whoever evicts them earlier may: the disruption budget grants
one pod more for each successor, so none of them holds a node back.
"""

from dataclasses import dataclass

from forebay_operator.observed import Object
from forebay_operator.planned import Note
from forebay_operator.planning.nodes.endings import find_ending
from forebay_operator.planning.pods import is_ready, pod_name
from forebay_operator.planning.situation import Situation


@dataclass(frozen=True)
class Successors:
    """How many more pods the Deployment gets, and who is told."""

    num: int = 0
    notes: tuple[Note, ...] = ()


def plan_successors(situation: Situation, num_replicas: int) -> Successors:
    """One for each ready pod on an ending node that the ready pods elsewhere do not make up for."""
    endings = list_endings(situation)
    if not endings:
        return Successors()
    ready = [pod for pod in situation.observed.pods if is_ready(pod)]
    doomed = [pod for pod in ready if node_of(pod) in endings]
    num_missing = num_replicas - (len(ready) - len(doomed))
    num = max(0, min(len(doomed), num_missing))
    is_news = _running(situation) < num_replicas + num
    notes = (_announce(pod, endings[node_of(pod)]) for pod in doomed[:num] if is_news)
    return Successors(num, tuple(notes))


def list_endings(situation: Situation) -> dict[str, str]:
    """The nodes whose end is announced, and by which taint."""
    nodes = situation.observed.nodes
    found = ((node["metadata"]["name"], find_ending(node)) for node in nodes if "spec" in node)
    return {name: taint for name, taint in found if taint}


def node_of(pod: Object) -> str:
    """Where it runs; empty before it is scheduled."""
    name: str = (pod.get("spec") or {}).get("nodeName", "")
    return name


def _running(situation: Situation) -> int:
    deployment = situation.observed.deployment
    return 0 if deployment is None else int(deployment["spec"].get("replicas", 1))


def _announce(pod: Object, taint: str) -> Note:
    return Note(
        "Normal",
        "NodeEnding",
        f"Node {node_of(pod)} is about to go (taint {taint}): a successor of pod {pod_name(pod)} "
        "starts now, and the pod drains once it is ready.",
    )
