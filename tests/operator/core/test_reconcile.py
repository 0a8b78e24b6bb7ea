"""Reconciling with a planner of the test's own against a fake API server: what is written, and
when."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fake_cluster import FakeCluster
from forebay_operator.apply import MOST_PASSING, Refused
from forebay_operator.cluster import ApiError
from forebay_operator.kinds import DELETION_COST, DEPLOYMENT, INFERENCE_SERVICE, JOB, POD
from forebay_operator.loads.scrape import Scraper
from forebay_operator.observed import Key, Observed, Settings
from forebay_operator.planned import Note, ObjectRef, Plan
from forebay_operator.reconcile import BLIND_SECONDS, Reconciler, needs_loads
from forebay_operator.store import Store
from forebay_operator.telemetry.metrics import Metrics
from forebay_operator.worker import work
from forebay_operator.workqueue import WorkQueue
from observed_builder import load, observed, pod

KEY = Key("team", "llama")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class CountingScraper(Scraper):
    """Asks nobody, and counts how often it was told to."""

    num_refreshes = 0

    async def refresh(self, key: Key) -> None:
        self.num_refreshes += 1


class World:
    """A fake cluster with a store that watches it, and a planner that does what the test says."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.store = Store()
        self.queue = WorkQueue(self.clock)
        self.now = 0.0
        self.plan: Callable[[Observed], Plan] = lambda observed: Plan()
        self.seen: list[Observed] = []
        self.scraper = CountingScraper(self.store, self.queue, Metrics())
        self.reconciler = Reconciler(
            self.cluster,
            self.store,
            self.queue,
            Settings("runtime", "operator"),
            self._planner,
            self.scraper,
        )
        self.cluster.watchers.append(self._watch)
        spec = {"model": {"uri": "hf://a/b"}}
        self.service = self.cluster.add(manifest(INFERENCE_SERVICE, "llama", spec=spec))

    def clock(self) -> float:
        return self.now

    async def reconcile(self) -> Plan | None:
        return await self.reconciler.reconcile(KEY, NOW)

    def child(self, kind: Any = DEPLOYMENT, name: str = "llama", **parts: Any) -> dict[str, Any]:
        owner = self.service["metadata"]["uid"]
        return manifest(kind, name, owner, **{"spec": {"replicas": 1}, **parts})

    def _planner(self, observed: Observed, now: datetime) -> Plan:
        self.seen.append(observed)
        return self.plan(observed)

    def _watch(self, event: str, item: Any) -> None:
        keys = self.store.drop(item) if event == "DELETED" else self.store.put(item)
        for key in keys:
            self.queue.add(key)


def manifest(kind: Any, name: str, owner: str = "", **parts: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"namespace": "team", "name": name}
    if owner:
        metadata["ownerReferences"] = [reference("forebay.dev/v1alpha1", owner)]
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **parts}


def reference(api_version: str, uid: str) -> dict[str, Any]:
    owner = {"kind": INFERENCE_SERVICE.name, "name": "llama", "uid": uid, "controller": True}
    return {"apiVersion": api_version, **owner}


@pytest.fixture
def world() -> World:
    return World()


async def test_a_wish_is_written_once_children_first_and_status_last(world: World) -> None:
    child = world.child(spec={"replicas": 1})
    world.plan = lambda observed: Plan(children=(child,), status={"replicas": 1})
    await world.reconcile()
    await world.reconcile()
    assert world.cluster.writes == [
        ("apply", "Deployment", "llama"),
        ("apply", "InferenceService/status", "llama"),
    ]


async def test_a_changed_wish_is_written(world: World) -> None:
    for replicas in (1, 2):
        child = world.child(spec={"replicas": replicas})
        world.plan = lambda observed, child=child: Plan(children=(child,))  # type: ignore[misc]
        await world.reconcile()
    assert world.cluster.writes == [("apply", "Deployment", "llama")] * 2
    assert world.cluster.objects["Deployment", "team", "llama"]["spec"] == {"replicas": 2}


async def test_what_others_change_is_put_right_but_a_status_is_theirs(world: World) -> None:
    world.plan = lambda observed: Plan(children=(world.child(spec={"replicas": 1}),))
    await world.reconcile()
    world.cluster.change(DEPLOYMENT, "team", "llama", {"status": {"replicas": 1}})
    await world.reconcile()
    assert len(world.cluster.writes) == 1
    world.cluster.change(DEPLOYMENT, "team", "llama", {"spec": {"replicas": 9}})
    await world.reconcile()
    assert len(world.cluster.writes) == 2


async def test_nothing_is_decided_before_own_writes_have_come_back(world: World) -> None:
    world.plan = lambda observed: Plan(children=(world.child(JOB, "job"),))
    world.cluster.is_silent = True
    await world.reconcile()
    assert await world.reconcile() is None
    assert len(world.seen) == 1


@pytest.mark.parametrize("kind", [JOB, POD, INFERENCE_SERVICE], ids=lambda kind: kind.name)
async def test_writes_that_the_watch_does_not_show_are_asked_for(
    world: World, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cluster.add(manifest(POD, "pod"))
    plans = {
        JOB: Plan(children=(world.child(JOB, "job"),)),
        POD: Plan(deletion_costs=(("pod", 1),)),
        INFERENCE_SERVICE: Plan(status={"replicas": 0}),
    }
    world.plan = lambda observed: plans[kind]
    world.cluster.is_silent = True
    await world.reconcile()
    world.cluster.requests.clear()
    monkeypatch.setattr("forebay_operator.reconcile.BLIND_SECONDS", 0.0)
    assert await world.reconcile() is not None
    assert [one[:2] for one in world.cluster.requests] == [("get", kind.name)]


async def test_a_deletion_that_the_watch_does_not_show_is_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.cluster.add(world.child(JOB, "job"))
    reference = ObjectRef("batch/v1", "Job", "job", job["metadata"]["uid"])
    world.plan = lambda observed: Plan(deletions=(reference,) if observed.jobs else ())
    world.cluster.is_silent = True
    await world.reconcile()
    monkeypatch.setattr("forebay_operator.reconcile.BLIND_SECONDS", 0.0)
    await world.reconcile()
    assert world.seen[-1].jobs == ()
    assert BLIND_SECONDS > 1


async def test_an_object_of_someone_else_is_left_alone_and_told_of(world: World) -> None:
    world.cluster.is_silent = True
    world.cluster.add(manifest(DEPLOYMENT, "llama", spec={"replicas": 7}))
    world.cluster.is_silent = False
    children = (world.child(spec={"replicas": 1}), world.child(JOB, "job"))
    world.plan = lambda observed: Plan(children=children)
    await world.reconcile()
    assert world.cluster.writes == [("apply", "Job", "job")]
    assert world.seen[-1].foreign == ("Deployment/llama",)


async def test_children_of_a_deleted_namesake_are_waited_for(world: World) -> None:
    world.cluster.add(manifest(DEPLOYMENT, "llama", "uid-of-old"))
    world.plan = lambda observed: Plan(children=(world.child(),), status={"replicas": 0})
    assert await world.reconcile() is None
    assert world.seen[-1].deployment is None
    assert world.cluster.writes == []


async def test_an_inference_service_of_another_project_is_told_of_not_waited_for(
    world: World,
) -> None:
    theirs = manifest(DEPLOYMENT, "llama")
    theirs["metadata"]["ownerReferences"] = [reference("serving.kserve.io/v1beta1", "theirs")]
    world.cluster.add(theirs)
    world.plan = lambda observed: Plan(children=(world.child(),))
    assert await world.reconcile() is not None
    assert world.seen[-1].foreign == ("Deployment/llama",)


async def test_a_child_that_no_watch_shows_is_decided_upon_as_it_is(world: World) -> None:
    """As when somebody took the label away by which it is watched."""
    world.cluster.is_silent = True
    world.cluster.add(world.child(spec={"replicas": 3}))
    world.cluster.is_silent = False

    def keep_or_begin(observed: Observed) -> Plan:
        found = observed.deployment
        replicas = found["spec"]["replicas"] if found else 1
        return Plan(children=(world.child(spec={"replicas": replicas}),))

    world.plan = keep_or_begin
    await world.reconcile()
    assert world.cluster.objects["Deployment", "team", "llama"]["spec"] == {"replicas": 3}


async def test_a_refusal_is_told_of_in_the_status_and_heals(world: World) -> None:
    world.plan = lambda observed: Plan(
        children=(world.child(),), status={"url": observed.apply_error}
    )
    world.cluster.refusals["apply", "Deployment"] = ApiError(403, "exceeded quota")
    with pytest.raises(Refused):
        await world.reconcile()
    place = ("InferenceService", "team", "llama")
    assert world.cluster.objects[place]["status"] == {
        "url": "Deployment llama was refused: exceeded quota"
    }
    world.cluster.refusals.clear()
    await world.reconcile()
    assert world.cluster.objects[place]["status"] == {"url": ""}


async def work_once(world: World) -> None:
    """Have a worker do what is due; nothing in this world keeps it waiting."""
    worker = asyncio.create_task(work(world.queue, world.reconciler, Metrics()))
    for _ in range(20):
        await asyncio.sleep(0)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def test_an_error_of_the_operators_own_shows_on_the_object_and_heals(world: World) -> None:
    def fail(observed: Observed) -> Plan:
        raise KeyError("lastTransitionTime")

    ready = {"type": "Ready", "status": "True", "reason": "AllReplicasReady", "message": "m"}
    available = {**ready, "type": "Available", "observedGeneration": 1}
    kept = {"replicas": 2, "conditions": [ready | {"lastTransitionTime": "t"}, available]}
    world.cluster.change(INFERENCE_SERVICE, "team", "llama", {"status": kept})
    world.plan = fail
    await work_once(world)
    status = world.cluster.objects["InferenceService", "team", "llama"]["status"]
    told = {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}
    assert told == {
        "Available": ("True", "AllReplicasReady"),
        "Ready": ("Unknown", "InternalError"),
        "Stalled": ("True", "InternalError"),
    }
    assert "KeyError: 'lastTransitionTime'" in status["conditions"][-1]["message"]
    assert status["replicas"] == 2
    world.plan = lambda observed: Plan(status={"url": "healed"})
    world.now = 60.0
    await work_once(world)
    healed = world.cluster.objects["InferenceService", "team", "llama"]["status"]
    assert healed == {"url": "healed"}


async def test_an_error_that_lasts_is_written_once(world: World) -> None:
    def fail(observed: Observed) -> Plan:
        raise ValueError("no")

    world.plan = fail
    for world.now in (0.0, 60.0, 120.0):
        await work_once(world)
    assert world.cluster.writes == [("apply", "InferenceService/status", "llama")]


async def test_an_error_that_cannot_be_told_does_not_end_the_worker(world: World) -> None:
    def fail(observed: Observed) -> Plan:
        raise ValueError("no")

    world.plan = fail
    world.cluster.refusals["apply", "InferenceService/status"] = ApiError(500, "no")
    await work_once(world)
    world.cluster.refusals.clear()
    world.plan = lambda observed: Plan(status={"url": "healed"})
    world.now = 60.0
    await work_once(world)
    assert len(world.cluster.writes) == 2


@pytest.mark.parametrize(
    "error",
    [ApiError(503, "busy"), ApiError(409, "Precondition failed: UID in precondition")],
    ids=["a busy API server", "a namesake that the watch has not shown"],
)
async def test_what_passes_is_no_refusal(world: World, error: ApiError) -> None:
    world.plan = lambda observed: Plan(children=(world.child(),), status={"url": "x"})
    world.cluster.refusals["apply", "Deployment"] = error
    with pytest.raises(ApiError):
        await world.reconcile()
    assert all(one.apply_error == "" for one in world.seen)
    assert world.cluster.writes == [("apply", "Deployment", "llama")]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        pytest.param(
            ApiError(500, 'failed calling webhook "w.test": connection refused'),
            'Deployment llama was refused: failed calling webhook "w.test": connection refused',
            id="a webhook that is down",
        ),
        pytest.param(
            TimeoutError(), "Deployment llama was not answered in time", id="a webhook that hangs"
        ),
    ],
)
async def test_what_should_pass_and_does_not_is_told(
    world: World, error: Exception, sentence: str
) -> None:
    world.plan = lambda observed: Plan(children=(world.child(),), status={"url": "x"})
    world.cluster.refusals["apply", "Deployment"] = error
    for _ in range(MOST_PASSING - 1):
        with pytest.raises(type(error)):
            await world.reconcile()
    with pytest.raises(Refused):
        await world.reconcile()
    assert world.seen[-1].apply_error == sentence
    assert world.cluster.writes[-1] == ("apply", "InferenceService/status", "llama")
    world.cluster.refusals.clear()
    await world.reconcile()
    assert world.seen[-1].apply_error == ""


async def test_a_namespace_that_goes_is_told_and_ends_the_trying(world: World) -> None:
    world.plan = lambda observed: Plan(children=(world.child(),), status={"url": "x"})
    details = {"causes": [{"reason": "NamespaceTerminating"}]}
    world.cluster.refusals["apply", "Deployment"] = ApiError(403, "forbidden", details)
    await world.reconcile()
    told = ("apply", "InferenceService/status", "llama")
    assert world.cluster.writes == [("apply", "Deployment", "llama"), told]


async def test_a_service_that_is_being_deleted_is_left_alone(world: World) -> None:
    world.plan = lambda observed: Plan(children=(world.child(),))
    gone = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    world.cluster.change(INFERENCE_SERVICE, "team", "llama", gone)
    assert await world.reconcile() is None
    assert world.seen == []


async def test_a_service_that_is_gone_is_forgotten(world: World) -> None:
    world.cluster.remove(INFERENCE_SERVICE, "team", "llama")
    assert await world.reconcile() is None
    assert world.queue.take() is None


async def test_deletion_costs_are_written_where_they_differ_and_before_the_rest(
    world: World,
) -> None:
    world.cluster.add(manifest(POD, "a"))
    world.cluster.add(manifest(POD, "b"))
    same = {"metadata": {"annotations": {DELETION_COST: "5"}}}
    world.cluster.change(POD, "team", "b", same)
    costs = (("a", 4), ("b", 5), ("gone", 6))
    world.plan = lambda observed: Plan(deletion_costs=costs, children=(world.child(),))
    await world.reconcile()
    assert world.cluster.writes == [("merge", "Pod", "a"), ("apply", "Deployment", "llama")]


async def test_a_leaving_pod_is_asked_what_it_holds_before_that_is_told_the_first_time(
    world: World,
) -> None:
    world.plan = lambda observed: Plan(status={"draining": [{"pod": "old", "inFlight": 0}]})
    await world.reconcile()
    assert world.scraper.num_refreshes == 1
    assert len(world.seen) == 2
    await world.reconcile()
    assert world.scraper.num_refreshes == 1


def test_a_pod_that_became_ready_is_asked_what_it_is_before_that_is_told() -> None:
    ready, heard = pod(ready=True), {"uid-smollm2-1": load()}
    assert needs_loads(observed(pods=(ready,)), Plan())
    assert not needs_loads(observed(pods=(ready,), loads=heard), Plan())
    assert not needs_loads(observed(pods=(pod(),)), Plan())


async def test_a_status_that_only_counts_waits_for_the_next_that_does_not(world: World) -> None:
    def told(reason: str, num_replicas: int) -> Plan:
        ready = {"type": "Ready", "status": "False", "reason": reason}
        return Plan(status={"conditions": [ready], "replicas": num_replicas})

    for decided in (told("Starting", 0), told("Starting", 1), told("Crashed", 1)):
        world.plan = lambda observed, decided=decided: decided  # type: ignore[misc]
        await world.reconcile()
    assert len(world.cluster.writes) == 2
    service = world.cluster.objects["InferenceService", "team", "llama"]
    assert service["status"]["conditions"][0]["reason"] == "Crashed"


async def test_a_status_that_waited_for_long_enough_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay_operator.planning.status_pace.STARTING_SECONDS", 0.0)
    for number in (0, 1):
        ready = {"type": "Ready", "status": "False", "reason": "Starting"}
        status = {"conditions": [ready], "replicas": number}
        world.plan = lambda observed, status=status: Plan(status=status)  # type: ignore[misc]
        await world.reconcile()
    assert len(world.cluster.writes) == 2


async def test_a_deletion_is_asked_for_once_and_only_of_the_one_that_was_meant(
    world: World,
) -> None:
    job = world.cluster.add(world.child(JOB, "job"))
    other = ObjectRef("batch/v1", "Job", "job", "uid-of-another")
    world.plan = lambda observed: Plan(deletions=(other,))
    await world.reconcile()
    assert ("Job", "team", "job") in world.cluster.objects
    mine = ObjectRef("batch/v1", "Job", "job", job["metadata"]["uid"])
    world.plan = lambda observed: Plan(deletions=(mine,))
    await world.reconcile()
    assert ("Job", "team", "job") not in world.cluster.objects


async def test_a_note_is_posted_once_until_it_changes(world: World) -> None:
    world.plan = lambda observed: Plan(notes=(Note("Normal", "Ready", "All is well."),))
    await world.reconcile()
    await world.reconcile()
    assert [one[:2] for one in world.cluster.writes] == [("create", "Event")]
    world.plan = lambda observed: Plan(notes=(Note("Warning", "Ill", "All is not well."),))
    await world.reconcile()
    assert len(world.cluster.writes) == 2


async def test_an_event_that_is_not_taken_harms_nothing(world: World) -> None:
    world.plan = lambda observed: Plan(notes=(Note("Normal", "Ready", "All is well."),))
    world.cluster.refusals["create", "Event"] = ApiError(403, "no")
    assert await world.reconcile() is not None


async def test_a_status_that_the_schema_cuts_is_not_written_for_ever(world: World) -> None:
    world.plan = lambda observed: Plan(status={"replicas": 1})
    await world.reconcile()
    cut = {"status": {"replicas": None}}
    world.cluster.change(INFERENCE_SERVICE, "team", "llama", cut)
    await world.reconcile()
    await world.reconcile()
    assert len(world.cluster.writes) == 2


async def test_a_job_that_ended_unseen_has_its_pods_read(world: World) -> None:
    job = world.cluster.add(world.child(JOB, "job", status={"succeeded": 1}))
    pod = manifest(POD, "job-x", status={"phase": "Succeeded"})
    owner = {"kind": "Job", "name": "job", "uid": job["metadata"]["uid"], "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    pod["metadata"]["labels"] = {"forebay.dev/inspection-of": "llama"}
    world.cluster.is_silent = True
    world.cluster.add(pod)
    await world.reconcile()
    assert [one["metadata"]["name"] for one in world.seen[-1].job_pods] == ["job-x"]


async def test_what_a_plan_remembers_comes_back(world: World) -> None:
    first = await world.reconcile()
    assert first is not None
    memory = world.seen[-1].memory
    assert memory is not None
    kept = type(memory)(started_at=NOW, startup_seconds=9.0)
    world.plan = lambda observed: Plan(memory=kept)
    await world.reconcile()
    await world.reconcile()
    assert world.seen[-1].memory == kept


async def test_a_second_look_is_taken_when_the_plan_asks_for_one(world: World) -> None:
    world.queue.take()
    world.queue.done(KEY)
    world.plan = lambda observed: Plan(look_again_seconds=30)
    await world.reconcile()
    world.now = 29
    assert world.queue.take() is None
    world.now = 30
    assert world.queue.take() == KEY


async def test_what_stays_incomplete_is_asked_about_and_looked_at_again(world: World) -> None:
    born = {"phase": "Pending"}
    job = world.cluster.add(world.child(JOB, "job", status=born))
    world.queue.take()
    world.queue.done(KEY)
    about = {"uid": job["metadata"]["uid"]}
    metadata = {"namespace": "team", "name": "e"}
    world.cluster.add({"kind": "Event", "metadata": metadata, "involvedObject": about})
    await world.reconcile()
    assert world.seen[-1].warnings == ()
    await world.reconciler.reconcile(KEY, NOW + timedelta(seconds=5))
    assert [one["metadata"]["name"] for one in world.seen[-1].warnings] == ["e"]
    world.now = 8.0
    assert world.queue.take() == KEY
