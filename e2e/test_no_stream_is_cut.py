"""Story: whatever makes a pod go, it finishes what it holds first, and no client notices."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from cluster_api import Object, wait_until
from departures import Departure, Departures
from long_streams import NUM_STREAMS, hold_pods
from operator_pod import OperatorPod
from served import RESOURCE, ServedModel, names
from traffic import Traffic

NUM_KILLS = [
    pytest.param(0, id="undisturbed"),
    pytest.param(1, id="while the operator is killed"),
    pytest.param(10, id="while the operator is killed ten times", marks=pytest.mark.long),
]
ROLLOUTS = [
    pytest.param(1, 0, id="once"),
    pytest.param(5, 0, id="five times", marks=pytest.mark.long),
    pytest.param(3, 5, id="while the operator is killed five times", marks=pytest.mark.long),
]


def evict(served: ServedModel, pod: str) -> None:
    """Ask the Eviction API for a pod, as `kubectl drain` does."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{served.namespace.name}/pods/{pod}/eviction"
    served.namespace.cluster_kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


def delete(served: ServedModel, pod: str) -> None:
    """Delete a pod."""
    served.namespace.kubectl("delete", "pod", pod, "--wait=false")


@pytest.mark.parametrize("num_kills", NUM_KILLS)
def test_scaling_down_cuts_no_stream(
    two_replicas: ServedModel, operator_pod: OperatorPod, num_kills: int
) -> None:
    served = two_replicas
    traffic = Traffic(served.base_url(), served.name)

    with Departures(served) as departures:
        streams = hold_pods(served, traffic)
        with (
            traffic.going_on(num_tokens=4, pause_seconds=0.2),
            operator_pod.killed_now_and_then(num_kills, most_seconds=2),
        ):
            served.namespace.kubectl("scale", "--replicas=1", f"{RESOURCE}/{served.name}")
            (gone,) = departures.wait_for(1, 300)
        faults = [stream.finish().fault for stream in streams]

    assert faults == [""] * len(streams) and len(streams) >= NUM_STREAMS
    assert traffic.faults == []
    assert_left_in_time(gone, served)
    assert len(served.wait_pods(1)) == 1


def test_a_draining_pod_is_named_with_what_it_holds(two_replicas: ServedModel) -> None:
    served = two_replicas
    traffic = Traffic(served.base_url(), served.name)

    with Departures(served) as departures:
        streams = hold_pods(served, traffic)
        served.namespace.kubectl("scale", "--replicas=1", f"{RESOURCE}/{served.name}")
        (draining,) = wait_draining(served)
        (gone,) = departures.wait_for(1, 180)
        faults = [stream.finish().fault for stream in streams]

    assert faults == [""] * len(streams)
    assert draining["pod"] == gone.pod
    assert draining["inFlight"] > 0
    assert not served.read()["status"].get("draining")


@pytest.mark.parametrize("remove", [evict, pytest.param(delete, marks=pytest.mark.long)])
def test_taking_a_pod_away_cuts_no_stream(
    two_replicas: ServedModel, remove: Callable[[ServedModel, str], None]
) -> None:
    served = two_replicas
    traffic = Traffic(served.base_url(), served.name)
    victim = sorted(names(served.pods()))[0]

    with Departures(served) as departures:
        streams = hold_pods(served, traffic)
        with traffic.going_on(num_tokens=4, pause_seconds=0.2):
            remove(served, victim)
            faults = [stream.finish().fault for stream in streams]
            (gone,) = departures.wait_for(1, 180)
            served.wait_pods(2)

    assert faults == [""] * len(streams)
    assert traffic.faults == []
    assert gone.pod == victim
    assert_left_in_time(gone, served)


@pytest.mark.parametrize(("num_rollouts", "num_kills"), ROLLOUTS)
def test_a_rollout_cuts_no_stream(
    two_replicas: ServedModel, operator_pod: OperatorPod, num_rollouts: int, num_kills: int
) -> None:
    served = two_replicas
    traffic = Traffic(served.base_url(), served.name)
    before = names(served.pods())

    with Departures(served) as departures:
        streams = hold_pods(served, traffic)
        with (
            traffic.going_on(num_tokens=4, pause_seconds=0.2),
            traffic.going_on(num_tokens=160, pause_seconds=0),
            operator_pod.killed_now_and_then(num_kills, most_seconds=10),
        ):
            for _ in range(num_rollouts):
                roll_out(served)
            gone = departures.wait_for(2 * num_rollouts, 180)
        faults = [stream.finish().fault for stream in streams]

    assert faults == [""] * len(streams)
    assert traffic.faults == []
    assert before <= {departure.pod for departure in gone}
    assert len(gone) == 2 * num_rollouts
    for departure in gone:
        assert_left_in_time(departure, served)


def roll_out(served: ServedModel) -> None:
    """Change what renders into the pods, and wait until both replicas have it."""
    engine = served.read()["spec"]["engine"]
    changed = {"spec": {"engine": {"maxNumSeqs": 12 if engine["maxNumSeqs"] != 12 else 16}}}
    served.patch(changed)
    served.wait_ready()
    served.wait_pods(2)


def wait_draining(served: ServedModel) -> list[Object]:
    """Wait until the status says which pod drains, and what it still holds."""

    def read() -> list[Object]:
        found: list[Object] = served.read()["status"].get("draining", [])
        return found

    def is_told(found: list[Object]) -> bool:
        return bool(found) and all("inFlight" in entry for entry in found)

    return wait_until(read, is_told, "status.draining says what a pod holds", 60)


def assert_left_in_time(departure: Departure, served: ServedModel) -> None:
    """Check that a pod ended by itself, after its lame duck and within its drain timeout."""
    drain = served.read()["spec"]["drain"]
    assert departure.exit_code == 0
    assert departure.took >= timedelta(seconds=drain["lameDuckSeconds"] - 1)
    assert departure.took <= timedelta(seconds=drain["lameDuckSeconds"] + drain["timeoutSeconds"])
