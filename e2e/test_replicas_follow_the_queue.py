"""Story: replicas follow the requests that wait; every decision says why, and nobody is cut off."""

import pytest

from cluster_api import wait_until
from departures import Departures
from namespace import Namespace
from operator_pod import OperatorPod
from served import ServedModel, build_service
from traffic import Traffic

ENGINE = {"dtype": "float32", "maxModelLen": 512, "maxNumSeqs": 2}
SCALING = {
    "minReplicas": 1,
    "maxReplicas": 2,
    "targetQueueDepth": 2,
    "scaleDownStabilizationSeconds": 10,
}
NUM_KILLS = [
    pytest.param(0, id="undisturbed"),
    pytest.param(1, id="while the operator is killed"),
    pytest.param(5, id="while the operator is killed five times", marks=pytest.mark.long),
]


def wanted_replicas(served: ServedModel) -> int:
    """Return how many replicas the pods' Deployment is asked for."""
    deployment = served.namespace.get("deployments", served.name)
    assert deployment is not None
    number: int = deployment["spec"]["replicas"]
    return number


@pytest.mark.parametrize("num_kills", NUM_KILLS)
def test_load_brings_a_second_replica_and_quiet_takes_it_away(
    namespace: Namespace, operator_pod: OperatorPod, num_kills: int
) -> None:
    namespace.apply(build_service("scaled", engine=ENGINE, scaling=SCALING))
    served = ServedModel(namespace, "scaled")
    served.wait_ready()
    served.wait_pods(1)
    traffic = Traffic(served.base_url(), served.name)

    with (
        traffic.going_on(num_tokens=40, pause_seconds=0, num_rounds=2),
        operator_pod.killed_now_and_then(num_kills, most_seconds=4),
    ):
        served.wait_pods(2)
        up = served.read()["status"]["scaling"]
    with (
        Departures(served) as departures,
        operator_pod.killed_now_and_then(num_kills, most_seconds=4),
    ):
        # Whoever asks before this decision may put it off, on a machine where answers take long.
        wait_until(lambda: wanted_replicas(served), lambda number: number == 1, "1 wanted", 240)
        with traffic.going_on(num_tokens=4, pause_seconds=0.2):
            (gone,) = departures.wait_for(1, 120)
    (left,) = served.wait_pods(1)
    down = served.read()["status"]["scaling"]

    assert (up["desiredReplicas"], down["desiredReplicas"]) == (2, 1)
    for decision in (up, down):
        assert decision["reason"] and decision["lastScaleTime"]
        assert any(character.isdigit() for character in decision["message"]), decision
    assert gone.exit_code == 0
    assert left["metadata"]["name"] != gone.pod
    assert traffic.faults == []
