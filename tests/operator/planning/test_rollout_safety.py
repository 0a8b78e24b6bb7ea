"""Whatever happens in whatever order, no rollout takes more than one replica out of service, none
takes the last one unannounced, and all histories end in the same state."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_operator.planned import Plan
from forebay_operator.planning.timestamps import parse_time
from observed_builder import NOW, child, says, service, terminated, unschedulable
from toy_cluster import HASH, ToyCluster, settled

CRASHED = {"containerStatuses": [{"name": "runtime", "state": terminated(message="No such flag")}]}
STARTING = {"containerStatuses": [{"name": "runtime", "started": False}]}
BROKEN_FLAG = "--max-num-seqs=5"
"""A template with it never comes up."""


class CrowdedCluster(ToyCluster):
    """A cluster with room for so many pods, in which each takes a step to start."""

    def __init__(self, raw: dict[str, Any], room: int) -> None:
        super().__init__(raw)
        self.room = room
        self.fate = self._befalls
        self._placed: set[str] = set()
        self._announced: set[str] = set()
        """Templates of which status has said that they replace pods."""

    def _befalls(self, pod: Mapping[str, Any]) -> dict[str, Any] | None:
        uid = pod["metadata"]["uid"]
        number = [one["metadata"]["uid"] for one in self.pods].index(uid)
        if number >= self.room:
            created = parse_time(pod["metadata"]["creationTimestamp"])
            return unschedulable("1 Insufficient memory.", (created - NOW).total_seconds())
        if uid not in self._placed:
            self._placed.add(uid)
            return STARTING
        is_broken = BROKEN_FLAG in pod["spec"]["containers"][0]["args"]
        return CRASHED if is_broken else None

    def num_ready(self) -> int:
        ready = {"type": "Ready", "status": "True"}
        conditions = [one["status"].get("conditions", ()) for one in self.pods]
        return sum(any(ready.items() <= one.items() for one in some) for some in conditions)

    def _roll(self) -> None:
        before, spec = self.num_ready(), self.children["Deployment", "smollm2"]["spec"]
        super()._roll()
        wanted, after = spec["replicas"], self.num_ready()
        assert after >= min(wanted - 1, before), "more than one replica was taken"
        if after < min(wanted, before):
            assert self._has_announced(), "a replica was taken without a word"

    def _has_announced(self) -> bool:
        spec = self.children["Deployment", "smollm2"]["spec"]
        return spec["template"]["metadata"]["labels"][HASH] in self._announced

    def _write_status(self, decided: Plan) -> None:
        super()._write_status(decided)
        if says(decided, "Progressing") == ("True", "Replacing"):
            deployment = child(decided, "Deployment")
            assert deployment is not None
            self._announced.add(deployment["spec"]["template"]["metadata"]["labels"][HASH])


EDITS: list[dict[str, Any]] = [
    {"engine": {"maxNumSeqs": 4}},
    {"engine": {"maxNumSeqs": 5}},
    {"engine": None},
    {"replicas": 1},
    {"replicas": 3},
    {"drain": {"timeoutSeconds": 7}},
]
ACTS = st.one_of(
    st.sampled_from(EDITS),
    st.integers(0, 7),  # the operator dies after so many writes
    st.sampled_from([1.0, 31.0, 120.0]),  # so much time passes
)


def carry_out(cluster: CrowdedCluster, act: dict[str, Any] | int | float) -> None:
    if isinstance(act, dict):
        cluster.change(**act)
    cluster.carry_out(cluster.decide(), act if isinstance(act, int) else None)
    cluster.step(act if isinstance(act, float) else 1)


@settings(max_examples=40, deadline=None)
@given(st.lists(ACTS, max_size=14), st.integers(1, 3), st.integers(0, 2))
def test_any_history_of_edits_kills_and_crowding_is_safe_and_ends_the_same(
    acts: list[Any], replicas: int, spare: int
) -> None:
    cluster = CrowdedCluster(service(replicas=replicas), room=9)
    cluster.settle()
    cluster.room = replicas + spare
    for act in acts:
        carry_out(cluster, act)
    cluster.change(engine={"maxNumSeqs": 6}, drain=None, replicas=replicas)
    for _ in range(30):
        carry_out(cluster, 31.0)
    decided = cluster.settle()
    assert says(decided, "Ready") == ("True", "AllReplicasReady")
    undisturbed = settled(replicas=replicas, engine={"maxNumSeqs": 6})
    assert cluster.hashes() == undisturbed.hashes()
    assert [one["metadata"]["labels"][HASH] for one in cluster.pods] == [
        one["metadata"]["labels"][HASH] for one in undisturbed.pods
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(EDITS[:3]), min_size=1, max_size=6), st.integers(1, 3))
def test_with_room_for_one_more_no_rollout_takes_any_replica(
    edits: list[dict[str, Any]], replicas: int
) -> None:
    cluster = CrowdedCluster(service(replicas=replicas), room=9)
    cluster.settle()
    for edit in edits:
        carry_out(cluster, edit)
        carry_out(cluster, 2.0)
        assert cluster.num_ready() >= replicas
