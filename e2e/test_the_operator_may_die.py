"""Story: the operator dies or is away, and nothing is lost, doubled, cut off or left behind.

That it may die while replicas come and go is shown where they do: test_no_stream_is_cut.py and
test_replicas_follow_the_queue.py.
"""

from contextlib import nullcontext

import pytest

from departures import Departures
from long_streams import hold_pods
from namespace import Namespace
from operator_pod import OperatorPod
from served import INSPECTION_LABEL, RESOURCE, ServedModel, build_service, names
from traffic import Traffic

NOWHERE = {"uri": "pvc://nowhere/model"}
MANAGED = "app.kubernetes.io/managed-by=forebay"
CHILD_KINDS = ("deployments", "services", "serviceaccounts", "controllerrevisions", "jobs", "pods")
NUM_KILLS = [1, pytest.param(10, marks=pytest.mark.long)]


@pytest.mark.parametrize("num_kills", NUM_KILLS)
def test_an_apply_is_finished_once(
    namespace: Namespace, operator_pod: OperatorPod, num_kills: int
) -> None:
    served = ServedModel(namespace, "smollm2")

    with operator_pod.killed_now_and_then(num_kills, most_seconds=4):
        namespace.apply(build_service(served.name))
    served.wait_ready()
    (pod,) = served.wait_pods(1)

    for kind in ("deployments", "services", "serviceaccounts", "controllerrevisions"):
        assert len(namespace.list(kind, MANAGED)) == 1, kind
    assert len(namespace.list("jobs", MANAGED)) <= 1
    assert len(namespace.list("pods", f"{INSPECTION_LABEL}={served.name}")) <= 1
    traffic = Traffic(served.base_url(), served.name)
    traffic.ask_together([4, 4])
    assert traffic.faults == []
    assert names(served.pods()) == {pod["metadata"]["name"]}


def test_without_an_operator_pods_serve_drain_and_go(
    namespace: Namespace, operator_pod: OperatorPod
) -> None:
    namespace.apply(build_service("orphan"))
    served = ServedModel(namespace, "orphan")
    served.wait_ready()
    (pod,) = served.wait_pods(1)
    traffic = Traffic(served.base_url(), served.name)

    with operator_pod.absent(), Departures(served) as departures:
        streams = hold_pods(served, traffic)
        namespace.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
        faults = [stream.finish().fault for stream in streams]
        (gone,) = departures.wait_for(1, 180)
        served.wait_pods(1)
        namespace.kubectl("delete", f"{RESOURCE}/{served.name}", "--timeout=60s")
        namespace.wait_gone(CHILD_KINDS, MANAGED, 180)

    assert faults == [""] * len(streams)
    assert gone.exit_code == 0


@pytest.mark.parametrize("is_operator_there", [True, False], ids=["with", "without"])
def test_a_namespace_goes_at_once_with_all_that_is_in_it(
    namespace: Namespace, operator_pod: OperatorPod, is_operator_there: bool
) -> None:
    drain = {"timeoutSeconds": 5, "lameDuckSeconds": 1}
    namespace.apply(
        build_service("doomed", drain=drain), build_service("never-ready", model=NOWHERE)
    )
    ServedModel(namespace, "doomed").wait_ready()

    with nullcontext() if is_operator_there else operator_pod.absent():
        namespace.delete()
        namespace.wait_deleted()


def test_deleting_the_service_removes_every_child(namespace: Namespace) -> None:
    namespace.apply(build_service("short-lived", replicas=0))
    ServedModel(namespace, "short-lived").wait_ready()
    assert namespace.list("deployments", MANAGED)

    namespace.kubectl("delete", f"{RESOURCE}/short-lived", "--timeout=60s")

    namespace.wait_gone(CHILD_KINDS, MANAGED, 120)
