"""A service under its namespace's VRAMQuota: it starts, rolls out and grows as far as it may."""

from collections.abc import Mapping
from typing import Any

import pytest

from forebay_operator.planned import Plan
from forebay_operator.planning.quota.ledger import plan_quotas
from forebay_operator.quota_entries import concerned
from observed_builder import NOW, child, condition_of, load, says, service, text
from toy_cluster import ToyCluster

GPU: dict[str, Any] = {"device": "GPU", "vram": {"budget": "40Gi", "gpuMemory": "80Gi"}}


def quota(budget: str, name: str = "gpus") -> dict[str, Any]:
    """A VRAMQuota that nobody has counted yet."""
    metadata = {"name": name, "namespace": "team-a", "uid": f"uid-{name}", "generation": 1}
    return {"metadata": metadata, "spec": {"budget": budget}, "status": {}}


def neighbour(name: str, total: str, age: float = 7200, **spec: Any) -> dict[str, Any]:
    """Another service of the namespace, older unless said otherwise."""
    raw = service(**{"device": "GPU", **spec})
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": text(-age)}
    vram = {"perReplica": total, "mostReplicas": 1, "total": total}
    return raw | {"metadata": raw["metadata"] | metadata, "status": {"vram": vram}}


def on_cpu(name: str) -> dict[str, Any]:
    """Another service of the namespace, which tells of no VRAM."""
    return neighbour(name, "0", device="CPU") | {"status": {"plan": {"budget": "60Gi"}}}


class Namespace:
    """One service that is planned, beside others that are only counted, under quotas."""

    def __init__(self, *quotas: dict[str, Any], others: tuple[Any, ...] = (), **spec: Any) -> None:
        self.cluster = ToyCluster(service(**{**GPU, **spec}))
        self.quotas, self.others = list(quotas), list(others)

    def settle(self) -> Plan:
        """Count and plan until nothing changes."""
        self.cluster.quotas = tuple(self.quotas)
        for _ in range(4):
            self.cluster.settle()
            self.count()
        return self.cluster.settle()

    def count(self) -> None:
        """Write the ledger, as the keeper of quotas does."""
        raw = self.cluster.service
        deployment = self.cluster.children.get(("Deployment", "smollm2"))
        deployments: Mapping[str, Any] = {"service-uid": deployment} if deployment else {}
        if self.quotas:
            statuses = plan_quotas(tuple(self.quotas), [raw, *self.others], deployments, NOW)
            self.quotas = [
                one | {"status": status} for one, status in zip(self.quotas, statuses, strict=True)
            ]
        self.cluster.quotas = tuple(self.quotas)

    def change_budget(self, budget: str) -> None:
        self.quotas[0] = self.quotas[0] | {"spec": {"budget": budget}}

    @property
    def num_pods(self) -> int:
        return len(self.cluster.pods)


READY = ("True", "AllReplicasReady")
WITHIN = ("True", "WithinQuota")
EXCEEDED = ("False", "VRAMQuotaExceeded")


@pytest.mark.parametrize(
    ("quotas", "others", "spec", "ready", "admitted", "num_pods"),
    [
        ([], [], {"replicas": 2}, READY, ("", ""), 2),
        ([quota("80Gi")], [], {"replicas": 2}, READY, WITHIN, 2),
        ([quota("79Gi")], [], {"replicas": 2}, EXCEEDED, EXCEEDED, 0),
        ([quota("80Gi")], [neighbour("llama", "60Gi")], {}, EXCEEDED, EXCEEDED, 0),
        ([quota("80Gi")], [neighbour("llama", "60Gi", age=1)], {}, READY, WITHIN, 1),
        ([quota("80Gi"), quota("30Gi", "tight")], [], {}, EXCEEDED, EXCEEDED, 0),
        ([quota("0")], [], {"device": "CPU", "vram": {}}, READY, ("", ""), 1),
        ([quota("0")], [], {"replicas": 0}, ("True", "ScaledToZero"), WITHIN, 0),
        ([quota("80Gi")], [], {"scaling": {"maxReplicas": 2}}, READY, WITHIN, 1),
        ([quota("80Gi")], [], {"scaling": {"maxReplicas": 3}}, EXCEEDED, EXCEEDED, 0),
        (
            [quota("80Gi")],
            [],
            {"scaling": {"maxReplicas": 1, "schedules": [{"cron": "0 8 * * *", "maxReplicas": 3}]}},
            EXCEEDED,
            EXCEEDED,
            0,
        ),
    ],
    ids=[
        "without a quota",
        "that fits exactly",
        "that does not fit",
        "beside an older one that leaves too little",
        "beside a younger one that it leaves too little",
        "under two quotas, of which the smaller is too small",
        "on a CPU counts for nothing",
        "of no replicas counts for nothing",
        "that scales counts at its most replicas",
        "that could scale beyond starts nothing",
        "whose schedule could scale beyond starts nothing",
    ],
)  # fmt: skip
def test_a_service(
    quotas: list[Any],
    others: list[Any],
    spec: dict[str, Any],
    ready: tuple[str, str],
    admitted: tuple[str, str],
    num_pods: int,
) -> None:
    space = Namespace(*quotas, others=tuple(others), **spec)
    decided = space.settle()
    assert says(decided, "Ready") == ready
    assert says(decided, "Admitted") == admitted
    assert space.num_pods == num_pods


def test_one_that_waits_is_told_who_holds_what_and_every_knob() -> None:
    others = (neighbour("llama", "60Gi"), neighbour("qwen", "20Gi"), neighbour("huge", "1Ti"))
    space = Namespace(quota("100Gi"), others=others)
    decided = space.settle()
    assert condition_of(decided, "Admitted")["message"] == (
        "40.0 GiB (at most 1 replica of 40.0 GiB) do not fit into VRAMQuota gpus of namespace "
        "team-a, which has 100.0 GiB: llama holds 60.0 GiB, qwen holds 20.0 GiB; raise the quota's "
        "spec.budget to 120Gi, lower spec.replicas or spec.vram.budget here, or have others hold "
        "less."
    )
    assert says(decided, "Stalled") == ("True", "VRAMQuotaExceeded")
    assert says(decided, "Fits") == ("True", "Fits")
    assert not child(decided, "Deployment") and not child(decided, "ControllerRevision")
    status = decided.status or {}
    claim = {"perReplica": "40Gi", "mostReplicas": 1, "total": "40Gi"}
    claim |= {"replicas": 0, "perRunningReplica": "0"}
    assert status["vram"] == claim
    assert status["plan"]["budget"] == "40Gi"


def test_many_holders_are_summed_up() -> None:
    others = tuple(neighbour(f"n{number}", "10Gi") for number in range(8))
    decided = Namespace(quota("80Gi"), others=others).settle()
    sentence = condition_of(decided, "Admitted")["message"]
    assert "n4 holds 10.0 GiB, 3 more hold 30.0 GiB; raise" in sentence


def test_before_it_is_counted_a_service_starts_nothing_and_is_not_stalled() -> None:
    space = Namespace(quota("80Gi"))
    space.cluster.quotas = tuple(space.quotas)
    decided = space.cluster.settle()
    assert says(decided, "Admitted") == ("Unknown", "VRAMQuotaPending")
    assert says(decided, "Ready") == ("False", "VRAMQuotaPending")
    assert says(decided, "Reconciling")[0] == "True" and not condition_of(decided, "Stalled")
    assert space.num_pods == 0
    assert says(space.settle(), "Ready") == READY


def running(budget: str = "80Gi", **spec: Any) -> Namespace:
    """A namespace whose service runs with all that it asks for."""
    space = Namespace(quota(budget), **spec)
    decided = space.settle()
    if says(decided, "Ready")[0] != "True":
        raise RuntimeError(condition_of(decided, "Ready")["message"])
    return space


@pytest.mark.parametrize("budget", ["0", "79Gi"])
def test_a_lowered_budget_stops_nothing(budget: str) -> None:
    space = running(replicas=2)
    names = [one["metadata"]["name"] for one in space.cluster.pods]
    space.change_budget(budget)
    decided = space.settle()
    assert [one["metadata"]["name"] for one in space.cluster.pods] == names
    assert says(decided, "Ready") == READY
    assert space.quotas[0]["status"]["conditions"][0]["reason"] == "BudgetExceeded"


def test_a_budget_that_comes_later_stops_nothing() -> None:
    space = Namespace(replicas=2)
    space.settle()
    space.quotas.append(quota("10Gi"))
    assert says(space.settle(), "Ready") == READY
    assert space.num_pods == 2


@pytest.mark.parametrize(
    ("edit", "ready", "num_pods", "is_rolled"),
    [
        ({"replicas": 3}, EXCEEDED, 2, False),
        ({"replicas": 1}, READY, 1, False),
        ({"engine": {"maxNumSeqs": 3}}, READY, 2, True),
        ({"vram": {"budget": "20Gi", "gpuMemory": "80Gi"}, "replicas": 3}, READY, 3, True),
        ({"vram": {"budget": "60Gi", "gpuMemory": "80Gi"}}, EXCEEDED, 2, False),
        ({"vram": {"budget": "60Gi", "gpuMemory": "80Gi"}, "replicas": 1}, READY, 1, True),
    ],
    ids=[
        "grows no more",
        "shrinks",
        "is rolled out anew at the same size",
        "runs more and smaller replicas",
        "keeps its pods when larger ones do not fit",
        "runs fewer and larger replicas",
    ],
)
def test_a_service_beyond_a_full_budget(
    edit: dict[str, Any], ready: tuple[str, str], num_pods: int, is_rolled: bool
) -> None:
    space = running(replicas=2)
    before = space.cluster.hashes()
    space.change_budget("79Gi" if edit.get("engine") else "80Gi")
    space.cluster.change(**edit)
    decided = space.settle()
    assert says(decided, "Ready") == ready
    assert says(decided, "Available")[0] == "True"
    assert space.num_pods == num_pods
    assert (space.cluster.hashes() != before) is is_rolled


def test_pods_beside_its_replicas_are_no_growth() -> None:
    """A successor of a pod whose node ends, or a number that somebody wrote."""
    space = running(replicas=2)
    space.cluster.change(replicas=3)
    space.settle()
    deployment = space.cluster.children["Deployment", "smollm2"]
    deployment["spec"] = {**deployment["spec"], "replicas": 3}
    space.count()
    assert space.quotas[0]["status"]["used"] == "80Gi"
    assert says(space.settle(), "Ready") == EXCEEDED
    assert space.num_pods == 2


CRASHES: dict[str, Any] = {
    "phase": "Running",
    "conditions": [],
    "containerStatuses": [{"name": "runtime", "started": False}],
}
"""A pod's status."""


@pytest.mark.parametrize(
    ("edit", "num_pods"),
    [
        ({"vram": {"budget": "10Gi", "gpuMemory": "80Gi"}}, 3),
        ({"device": "CPU", "vram": None}, 3),
        ({"device": "CPU", "vram": {"budget": "1Mi"}}, 2),
        ({"device": "CPU", "vram": {"budget": "1Mi"}, "replicas": 4}, 2),
    ],
    ids=[
        "to smaller replicas that do not start",
        "to CPUs where they do not start",
        "to a CPU that it does not fit into",
        "to more on a CPU that it does not fit into",
    ],
)
def test_pods_count_for_what_they_take_until_an_edit_has_reached_them(
    edit: dict[str, Any], num_pods: int
) -> None:
    space = running(replicas=2)
    space.cluster.fate = lambda pod: CRASHES
    space.cluster.change(**edit)
    space.settle()
    assert space.num_pods == num_pods
    assert space.quotas[0]["status"]["used"] == "80Gi"
    space.others.append(neighbour("llama", "20Gi"))
    space.settle()
    assert space.quotas[0]["status"]["conditions"][0]["reason"] == "ServicesWait"
    assert space.num_pods == num_pods


def test_none_of_the_replicas_that_are_wanted_is_not_the_same_as_none_wanted() -> None:
    space = Namespace(quota("80Gi"), replicas=0)
    assert says(space.settle(), "Available") == ("False", "ScaledToZero")
    space.others.append(neighbour("llama", "60Gi"))
    space.settle()
    space.cluster.change(replicas=2)
    decided = space.settle()
    assert says(decided, "Ready") == EXCEEDED
    assert says(decided, "Available") == ("False", "NoReplicaReady")


def test_a_quota_tells_what_an_edit_has_yet_to_give_back() -> None:
    space = running(replicas=2)
    space.cluster.fate = lambda pod: CRASHES
    space.cluster.change(vram={"budget": "10Gi", "gpuMemory": "80Gi"})
    space.settle()
    assert space.quotas[0]["status"]["conditions"][0]["message"] == (
        "1 service asks for 20.0 GiB of 80.0 GiB, and all of it is granted; 60.0 GiB more are held "
        "until an edit has reached the pods."
    )


@pytest.mark.parametrize(
    ("edit", "used", "admitted"),
    [
        ({"vram": {"budget": "10Gi", "gpuMemory": "80Gi"}}, "20Gi", WITHIN),
        ({"device": "CPU", "vram": None}, "0", ("", "")),
    ],
    ids=["smaller replicas", "CPUs"],
)
def test_what_an_edit_gives_back_is_free_once_it_has_reached_the_pods(
    edit: dict[str, Any], used: str, admitted: tuple[str, str]
) -> None:
    space = running(replicas=2)
    space.cluster.change(**edit)
    decided = space.settle()
    assert space.quotas[0]["status"]["used"] == used
    assert (says(decided, "Ready"), says(decided, "Admitted")) == (READY, admitted)


def test_a_cpus_memory_is_no_vram() -> None:
    space = Namespace(quota("1Gi"), device="CPU", vram={}, replicas=2)
    space.settle()
    space.cluster.change(device="GPU", vram={"budget": "1Mi", "gpuMemory": "80Gi"})
    decided = space.settle()
    assert says(decided, "Ready") == ("False", "InsufficientMemory")
    assert (space.num_pods, space.quotas[0]["status"]["used"]) == (2, "0")
    space.cluster.change(**GPU)
    assert says(space.settle(), "Ready") == EXCEEDED
    assert (space.num_pods, space.quotas[0]["status"]["used"]) == (2, "0")


@pytest.mark.parametrize(
    ("budget", "claim", "words"),
    [
        (str(40 * 2**30 - 1), "40Gi", "has 40.0 GiB (1 byte too little): no other"),
        ("40Gi", str(40 * 2**30 + 1), f"spec.budget to {40 * 2**30 + 1}, lower"),
        ("80Gi", "102401Mi", "spec.budget to 102401Mi, lower"),
    ],
    ids=["less than it seems", "more than it seems", "more than three digits"],
)
def test_what_does_not_fit_by_little_says_by_how_much(budget: str, claim: str, words: str) -> None:
    space = Namespace(quota(budget), vram={"budget": claim, "gpuMemory": "200Gi"})
    decided = space.settle()
    assert words in condition_of(decided, "Admitted")["message"]
    space.change_budget(claim)
    assert says(space.settle(), "Ready") == READY


def test_an_edit_that_is_taken_back_takes_no_more_than_is_left() -> None:
    space = running()
    space.cluster.change(vram={"budget": "20Gi", "gpuMemory": "80Gi"})
    space.settle()
    small = space.cluster.hashes()
    space.others.append(neighbour("llama", "60Gi", age=1))
    space.settle()
    space.cluster.change(**GPU)
    assert says(space.settle(), "Ready") == EXCEEDED
    assert space.cluster.hashes() == small
    space.others.clear()
    assert says(space.settle(), "Ready") == READY


def test_one_that_was_held_back_heals_with_the_budget() -> None:
    space = running(replicas=2)
    space.cluster.change(replicas=3)
    assert says(space.settle(), "Ready") == EXCEEDED
    space.change_budget("120Gi")
    assert says(space.settle(), "Ready") == READY
    assert space.num_pods == 3


def test_scaling_is_held_at_what_is_granted_and_says_so() -> None:
    space = running("160Gi", scaling={"maxReplicas": 4})
    space.change_budget("60Gi")
    space.others.append(neighbour("llama", "20Gi"))
    space.settle()
    space.cluster.loads = {one["metadata"]["uid"]: load(1, 90) for one in space.cluster.pods}
    decided = space.settle()
    assert space.num_pods == 1
    assert says(decided, "Ready") == READY
    assert says(decided, "Admitted") == EXCEEDED
    scaling = (decided.status or {})["scaling"]
    assert scaling["reason"] == "AtMaximum"
    assert "the namespace's VRAMQuota holds it at 1" in scaling["message"]


def test_a_least_number_of_replicas_that_is_not_granted_is_not_ready() -> None:
    space = running("160Gi", scaling={"minReplicas": 1, "maxReplicas": 2})
    space.change_budget("40Gi")
    space.settle()
    space.cluster.change(scaling={"minReplicas": 2, "maxReplicas": 2})
    assert says(space.settle(), "Ready") == EXCEEDED
    assert space.num_pods == 1


def test_a_namesake_inherits_nothing() -> None:
    space = Namespace(quota("40Gi"))
    space.settle()
    heir = service(**GPU)
    heir["metadata"]["uid"] = "another-uid"
    space.cluster = ToyCluster(heir)
    space.cluster.quotas = tuple(space.quotas)
    assert says(space.cluster.settle(), "Admitted") == ("Unknown", "VRAMQuotaPending")


def test_a_status_that_somebody_wiped_costs_no_grant() -> None:
    space = running(replicas=2)
    space.cluster.service["status"] = {}
    space.count()
    assert space.quotas[0]["status"]["used"] == "80Gi"
    assert says(space.settle(), "Ready") == READY


def test_what_others_do_changes_no_word_of_a_service_that_is_admitted() -> None:
    space = running()
    status = space.cluster.service["status"]
    space.others.append(neighbour("llama", "40Gi"))
    space.settle()
    assert space.cluster.service["status"] == status


@pytest.mark.parametrize(
    ("others", "budget", "said"),
    [
        ((), "80Gi", ("True", "AllAdmitted", "0 services ask for 0 bytes of 80.0 GiB")),
        ((neighbour("a", "60Gi"),), "80Gi", ("True", "AllAdmitted", "1 service asks for 60.0 GiB")),
        (
            (neighbour("a", "60Gi"), neighbour("b", "30Gi")),
            "80Gi",
            ("False", "ServicesWait", "b (30.0 GiB more) do not fit; a spec.budget of 90Gi would"),
        ),
        ((on_cpu("a"),), "1Gi", ("True", "AllAdmitted", "0 services")),
    ],
    ids=["without services", "with one that fits", "with one that waits", "with one on a CPU"],
)
def test_a_quota(others: tuple[Any, ...], budget: str, said: tuple[str, str, str]) -> None:
    (status,) = plan_quotas((quota(budget),), others, {}, NOW)
    (condition,) = status["conditions"]
    assert (condition["status"], condition["reason"]) == said[:2]
    assert said[2] in condition["message"]


def test_a_changed_ledger_concerns_those_it_changed_for_and_those_that_wait() -> None:
    def counted(*others: dict[str, Any]) -> dict[str, Any]:
        return quota("80Gi") | {"status": plan_quotas((quota("80Gi"),), others, {}, NOW)[0]}

    calm, waits = neighbour("calm", "40Gi", 9000), neighbour("waits", "60Gi", 100)
    new = neighbour("new", "10Gi", 50)
    before = counted(calm, waits)
    assert concerned(before, before) == set()
    assert concerned(before, counted(calm, waits, new)) == {"new", "waits"}
    assert concerned(before, counted(waits)) == {"calm", "waits"}
