"""Services and a budget in any order of events: no more runs than is granted, and nothing that runs
is stopped."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_operator.planning.quota.ledger import plan_quotas
from observed_builder import NOW, service, text
from toy_cluster import ToyCluster

GIB = 1024**3
NAMES = ("old", "young", "last")
PER_REPLICA = {"old": 40, "young": 30, "last": 10}


class Namespace:
    """Three services, each planned on its own, and the ledger between them."""

    def __init__(self) -> None:
        self.quota: dict[str, Any] = {
            "metadata": {"name": "gpus", "namespace": "team-a", "uid": "q", "generation": 1},
            "spec": {"budget": "100Gi"},
            "status": {},
        }
        self.services = {name: self._ask(name, age) for age, name in enumerate(reversed(NAMES))}
        for name in NAMES * 3:  # until their models are known
            self.plan(name)

    def _ask(self, name: str, age: int) -> ToyCluster:
        vram = {"budget": f"{PER_REPLICA[name]}Gi", "gpuMemory": "80Gi"}
        raw = service(device="GPU", vram=vram)
        raw["metadata"] |= {"uid": name, "creationTimestamp": text(-age)}
        return ToyCluster(raw)

    def count(self) -> None:
        """The ledger knows them by names that a toy cluster has not."""
        raws = [
            {**one.service, "metadata": {**one.service["metadata"], "name": name}}
            for name, one in self.services.items()
        ]
        deployments = {
            name: deployment
            for name, one in self.services.items()
            if (deployment := one.children.get(("Deployment", "smollm2"))) is not None
        }
        (status,) = plan_quotas((self.quota,), raws, deployments, NOW)
        self.quota = self.quota | {"status": status}

    def plan(self, name: str) -> None:
        one = self.services[name]
        one.quotas = (self.quota,)
        one.carry_out(one.decide())
        one.step()

    def replicas(self) -> dict[str, int]:
        """What each Deployment is set to."""
        found = {}
        for name, one in self.services.items():
            deployment = one.children.get(("Deployment", "smollm2"))
            found[name] = deployment["spec"]["replicas"] if deployment else 0
        return found

    def used(self) -> int:
        return sum(number * PER_REPLICA[name] for name, number in self.replicas().items())


EVENTS = st.one_of(
    st.tuples(st.just("plan"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("count"), st.just(""), st.just(0)),
    st.tuples(st.just("replicas"), st.sampled_from(NAMES), st.integers(0, 4)),
    st.tuples(st.just("budget"), st.just(""), st.sampled_from([0, 30, 80, 100, 200])),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(EVENTS, max_size=30), st.sampled_from(NAMES))
def test_in_any_order_of_events(events: list[tuple[str, str, int]], first: str) -> None:
    space = Namespace()
    most = 100
    space.count()
    space.plan(first)
    for what, name, number in events:
        before, used = space.replicas(), space.used()
        if what == "plan":
            space.plan(name)
        elif what == "count":
            space.count()
            # From here on, only what was granted under this budget may start.
            most = int(space.quota["spec"]["budget"].removesuffix("Gi"))
        elif what == "replicas":
            space.services[name].change(replicas=number)
        else:
            space.quota = space.quota | {"spec": {"budget": f"{number}Gi"}}
            most = max(most, number)
        wanted = {
            each: one.service["spec"].get("replicas", 1) for each, one in space.services.items()
        }
        assert space.used() <= max(most, used)
        for each, running in space.replicas().items():
            assert running >= min(before[each], wanted[each])


@settings(max_examples=20, deadline=None)
@given(st.lists(EVENTS, max_size=15), st.sampled_from([30, 80, 100, 200]))
def test_after_any_history_who_fits_runs_what_it_asks_for(
    events: list[tuple[str, str, int]], budget: int
) -> None:
    space = Namespace()
    for what, name, number in [*events, ("budget", "", budget)]:
        if what == "plan":
            space.plan(name)
        elif what == "count":
            space.count()
        elif what == "replicas":
            space.services[name].change(replicas=number)
        else:
            space.quota = space.quota | {"spec": {"budget": f"{number}Gi"}}
    for _ in range(8):
        space.count()
        for name in NAMES:
            space.plan(name)
    left = budget - space.used()
    for name, one in space.services.items():
        lacking = one.service["spec"].get("replicas", 1) - space.replicas()[name]
        assert lacking >= 0
        assert lacking == 0 or lacking * PER_REPLICA[name] > left
