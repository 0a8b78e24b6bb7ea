"""A cluster in a dictionary for planning: applies Plans and plays Kubernetes' own controllers.

Jobs get a pod that finds SMOLLM2; Deployments roll their pods as the real controller does
for maxSurge and maxUnavailable; a pod is ready one step after its creation, unless `fate` gives it
another status.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from forebay_operator.observed import Observed, PodLoad, ScalingMemory
from forebay_operator.planned import Plan
from forebay_operator.planning import plan
from observed_builder import KEY, NOW, SETTINGS, SMOLLM2, condition, service

Fate = Callable[[Mapping[str, Any]], dict[str, Any] | None]
HASH = "forebay.dev/template-hash"


class ToyCluster:
    """One InferenceService's world."""

    def __init__(self, service: dict[str, Any]) -> None:
        self.service = service
        self.now: datetime = NOW
        self.children: dict[tuple[str, str], dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.job_pods: list[dict[str, Any]] = []
        self.loads: dict[str, PodLoad] = {}
        self.warnings: tuple[dict[str, Any], ...] = ()
        self.nodes: tuple[dict[str, Any], ...] = ()
        self.quotas: tuple[Mapping[str, Any], ...] = ()
        self.replica_sets: tuple[dict[str, Any], ...] = ()
        self.resource_quotas: tuple[dict[str, Any], ...] = ()
        self.foreign: tuple[str, ...] = ()
        self.orphans: tuple[str, ...] = ()
        self.apply_error = ""
        self.memory: ScalingMemory | None = None
        self.fate: Fate = lambda pod: None
        self.settings = SETTINGS
        self.num_writes = 0
        self._num_born = 0

    def observe(self) -> Observed:
        """What the operator sees now."""
        revisions = self._of("ControllerRevision")
        return Observed(
            key=KEY,
            settings=self.settings,
            service=self.service,
            deployment=self.children.get(("Deployment", KEY.name)),
            network_service=self.children.get(("Service", KEY.name)),
            revisions=tuple(sorted(revisions, key=lambda one: one["revision"])),
            jobs=tuple(self._of("Job")),
            job_pods=tuple(self.job_pods),
            pods=tuple(self.pods),
            nodes=self.nodes,
            replica_sets=self.replica_sets,
            resource_quotas=self.resource_quotas,
            loads=self.loads,
            warnings=self.warnings,
            quotas=self.quotas,
            foreign=self.foreign,
            orphans=self.orphans,
            apply_error=self.apply_error,
            memory=self.memory,
        )

    def decide(self) -> Plan:
        """Plan, as the operator would now."""
        return plan(self.observe(), self.now)

    def carry_out(self, decided: Plan, num_actions: int | None = None) -> None:
        """Apply a Plan; with `num_actions`, die after so many writes."""
        actions: list[Callable[[], None]] = [
            *(lambda one=one: self._apply(one) for one in decided.children),  # type: ignore[misc]
            *(lambda ref=ref: self._delete(ref.kind, ref.name) for ref in decided.deletions),  # type: ignore[misc]
            lambda: self._write_status(decided),
        ]
        for action in actions[:num_actions]:
            action()
        if num_actions is None:
            self.memory = decided.memory
        else:
            self.memory = None

    def step(self, seconds: float = 2) -> None:
        """Let time pass and Kubernetes act once."""
        self.now += timedelta(seconds=seconds)
        self._run_jobs()
        self._ripen_pods()
        if ("Deployment", KEY.name) in self.children:
            self._roll()
            self._count()

    def settle(self, most: int = 60) -> Plan:
        """Plan and apply until nothing changes any more."""
        for _ in range(most):
            before = self._picture()
            decided = self.decide()
            self.carry_out(decided)
            self.step()
            if self._picture() == before:
                return self.decide()
        raise AssertionError(f"nothing settled in {most} rounds")

    def change(self, **spec: Any) -> None:
        """A person edits the spec; None removes a field."""
        merged = {**self.service["spec"], **spec}
        self.service = copy.deepcopy(self.service)
        self.service["spec"] = {name: value for name, value in merged.items() if value is not None}
        self.service["metadata"]["generation"] += 1

    def befall(self, status: Mapping[str, Any], index: int = 0) -> None:
        """Something happens to a pod, and the Deployment's controller sees it."""
        self.pods[index] = {**self.pods[index], "status": dict(status)}
        self._count()

    def hashes(self) -> set[str]:
        """The templates that pods run now."""
        return {one["metadata"]["labels"][HASH] for one in self.pods}

    def _picture(self) -> Any:
        pods = [(one["metadata"]["name"], one["status"]) for one in self.pods]
        return copy.deepcopy((self.service, self.children, pods, self.job_pods))

    def _of(self, kind: str) -> list[dict[str, Any]]:
        return [one for (found, _), one in self.children.items() if found == kind]

    def _born(self) -> dict[str, Any]:
        self._num_born += 1
        moment = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"uid": f"uid-{self._num_born}", "creationTimestamp": moment}

    def _apply(self, manifest: Mapping[str, Any]) -> None:
        place = (manifest["kind"], manifest["metadata"]["name"])
        known = self.children.get(place)
        if known is None:
            self.num_writes += 1
            metadata = {**manifest["metadata"], **self._born(), "generation": 1}
            self.children[place] = {**copy.deepcopy(dict(manifest)), "metadata": metadata}
            return
        parts = {name: part for name, part in manifest.items() if name != "metadata"}
        if any(known.get(name) != part for name, part in parts.items()):
            self.num_writes += 1
            if manifest["kind"] == "ControllerRevision" and known["data"] != manifest["data"]:
                raise AssertionError("the data of a ControllerRevision is immutable")
            generation = known["metadata"]["generation"] + 1
            metadata = {**known["metadata"], "generation": generation}
            self.children[place] = {**known, **copy.deepcopy(parts), "metadata": metadata}

    def _delete(self, kind: str, name: str) -> None:
        self.num_writes += 1
        gone = self.children.pop((kind, name), None)
        if gone is not None and kind == "Job":
            uid = gone["metadata"]["uid"]
            self.job_pods = [one for one in self.job_pods if _owner(one) != uid]

    def _write_status(self, decided: Plan) -> None:
        if decided.status is not None and decided.status != self.service["status"]:
            self.service = {**self.service, "status": copy.deepcopy(dict(decided.status))}

    def _run_jobs(self) -> None:
        for job in self._of("Job"):
            uid = job["metadata"]["uid"]
            if any(_owner(one) == uid for one in self.job_pods):
                continue
            moment = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
            ended = {
                "exitCode": 0,
                "message": SMOLLM2.to_json(),
                "finishedAt": moment,
            }
            self.job_pods.append(
                {
                    "metadata": {
                        "name": f"{job['metadata']['name']}-x",
                        **self._born(),
                        "ownerReferences": [{"uid": uid, "controller": True}],
                    },
                    "spec": {"containers": [{"name": "inspect"}]},
                    "status": {
                        "containerStatuses": [{"name": "inspect", "state": {"terminated": ended}}]
                    },
                }
            )

    def _ripen_pods(self) -> None:
        for one in self.pods:
            fated = self.fate(one)
            moment = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
            if fated is not None:
                one["status"] = fated
            elif not _is_ready(one):
                ready = condition("Ready", "True") | {"lastTransitionTime": moment}
                one["status"] = {
                    "phase": "Running",
                    "conditions": [ready],
                    "containerStatuses": [{"name": "runtime", "started": True}],
                }

    def _roll(self) -> None:
        """One step of the Deployment controller: up to the surge, down to the floor."""
        spec = self.children["Deployment", KEY.name]["spec"]
        rolling, wanted = spec["strategy"]["rollingUpdate"], spec["replicas"]
        digest = spec["template"]["metadata"]["labels"][HASH]
        new = [one for one in self.pods if _hash(one) == digest]
        old = [one for one in self.pods if _hash(one) != digest]
        floor = wanted - _count_of(rolling["maxUnavailable"], wanted)
        num_spare = sum(map(_is_ready, self.pods)) - floor
        for one in sorted(old, key=_is_ready):
            room = len(self.pods) - floor - sum(not _is_ready(pod) for pod in new)
            if _is_ready(one):
                if num_spare <= 0:
                    continue
                num_spare -= 1
            elif room <= 0:
                continue
            self.pods.remove(one)
        for one in new[wanted:]:
            self.pods.remove(one)
        num_created = min(wanted - len(new), wanted + rolling["maxSurge"] - len(self.pods))
        self.pods += [self._create(spec["template"]) for _ in range(num_created)]

    def _create(self, template: Mapping[str, Any]) -> dict[str, Any]:
        born = self._born()
        metadata = {"name": f"pod-{born['uid']}", **born, "labels": template["metadata"]["labels"]}
        status = {"phase": "Pending", "conditions": [], "containerStatuses": []}
        return {"metadata": metadata, "spec": template["spec"], "status": status}

    def _count(self) -> None:
        deployment = self.children["Deployment", KEY.name]
        digest = deployment["spec"]["template"]["metadata"]["labels"][HASH]
        num_ready = sum(map(_is_ready, self.pods))
        self.children["Deployment", KEY.name] = {
            **deployment,
            "status": {
                "observedGeneration": deployment["metadata"]["generation"],
                "replicas": len(self.pods),
                "updatedReplicas": sum(_hash(one) == digest for one in self.pods),
                "readyReplicas": num_ready,
                "availableReplicas": num_ready,
            },
        }


def with_settings(cluster: ToyCluster, **changes: str) -> None:
    """The platform team changes its settings."""
    cluster.settings = replace(cluster.settings, **changes)  # type: ignore[arg-type]


def _count_of(share: int | str, whole: int) -> int:
    """A share of the replicas, as Deployments write it."""
    return whole * int(share.removesuffix("%")) // 100 if isinstance(share, str) else share


def _owner(pod: Mapping[str, Any]) -> str:
    uid: str = pod["metadata"]["ownerReferences"][0]["uid"]
    return uid


def _hash(pod: Mapping[str, Any]) -> str:
    digest: str = pod["metadata"]["labels"][HASH]
    return digest


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def settled(**spec: Any) -> ToyCluster:
    """A service whose plans have come to rest."""
    cluster = ToyCluster(service(**spec))
    cluster.settle()
    return cluster
