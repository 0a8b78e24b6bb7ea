"""Gather everything one decision may look at from the store. Reads only; no request is made here.

An object counts as a service's own by the uid of its controller, never by its name or labels: a
namesake of a deleted service, or a bare pod with the right labels, is somebody else's.
"""

from collections.abc import Iterable, Mapping

from forebay_operator.kinds import (
    CONTROLLER_REVISION,
    DEPLOYMENT,
    INFERENCE_SERVICE,
    INSPECTION_LABEL,
    JOB,
    MANAGED_LABEL,
    NETWORK_SERVICE,
    NODE,
    POD,
    REPLICA_SET,
    RESOURCE_SLICE,
    SERVICE_LABEL,
    Kind,
)
from forebay_operator.memory import Memory
from forebay_operator.objects import controller_of, uid_of
from forebay_operator.observed import Key, Object, Observed, PodLoad, Settings
from forebay_operator.store import Store


def observe(
    store: Store, key: Key, settings: Settings, memory: Memory, loads: Mapping[str, PodLoad]
) -> Observed | None:
    """One InferenceService with its children and the nodes; None if there is no such service."""
    service = store.find(INFERENCE_SERVICE, key.namespace, key.name)
    if service is None:
        return None
    uid = uid_of(service)
    jobs = _children(store, key, JOB, uid)
    deployments = _children(store, key, DEPLOYMENT, uid)
    replica_sets = _controlled_by(_uids(deployments), store.children(key, REPLICA_SET))
    all_pods = store.children(key, POD)
    pods = _controlled_by(_uids(replica_sets), all_pods)
    return Observed(
        key=key,
        settings=settings,
        service=service,
        deployment=_named(key.name, deployments),
        network_service=_named(key.name, _children(store, key, NETWORK_SERVICE, uid)),
        revisions=_children(store, key, CONTROLLER_REVISION, uid),
        jobs=jobs,
        job_pods=_controlled_by(_uids(jobs), all_pods),
        pods=pods,
        replica_sets=replica_sets,
        nodes=store.surroundings(NODE),
        resource_slices=store.surroundings(RESOURCE_SLICE),
        warnings=memory.warnings,
        loads=select_loads(pods, loads),
        memory=memory.scaling,
        quotas=store.quotas(key.namespace),
        nodes_readable=NODE in store.readable,
    )


def select_loads(pods: Iterable[Object], loads: Mapping[str, PodLoad]) -> dict[str, PodLoad]:
    """What these pods have said, by their uids."""
    return {uid_of(pod): loads[uid_of(pod)] for pod in pods if uid_of(pod) in loads}


def list_unexplained(observed: Observed) -> set[str]:
    """Uids of Jobs that are finished while none of their pods is: the watch of pods is behind."""
    finished = {uid_of(job) for job in observed.jobs if _is_finished(job)}
    ended = [pod for pod in observed.job_pods if _phase(pod) in ("Succeeded", "Failed")]
    return finished - {controller_of(pod).get("uid") for pod in ended}


def is_over_quota(observed: Observed) -> bool:
    """Whether a quota refuses pods of the Deployment now."""
    status = (observed.deployment or {}).get("status") or {}
    return any(
        one["type"] == "ReplicaFailure" and "exceeded quota" in one.get("message", "")
        for one in status.get("conditions") or ()
        if one["status"] == "True"
    )


def is_orphan(item: Object, key: Key) -> bool:
    """Whether a service of this name was deleted without it: it says so, and nobody owns it."""
    labels = item["metadata"].get("labels") or {}
    names = (labels.get(SERVICE_LABEL), labels.get(INSPECTION_LABEL))
    is_ours = MANAGED_LABEL.items() <= labels.items() and key.name in names
    return is_ours and not item["metadata"].get("ownerReferences")


def is_owned(item: Object, service_uid: str) -> bool:
    """Whether an object belongs to this very InferenceService."""
    return controller_of(item).get("uid") == service_uid


def _is_finished(job: Object) -> bool:
    status = job.get("status") or {}
    return bool(status.get("succeeded") or status.get("failed"))


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _children(store: Store, key: Key, kind: Kind, uid: str) -> tuple[Object, ...]:
    return _controlled_by({uid}, store.children(key, kind))


def _controlled_by(uids: set[str], items: Iterable[Object]) -> tuple[Object, ...]:
    return tuple(item for item in items if controller_of(item).get("uid") in uids)


def _uids(items: Iterable[Object]) -> set[str]:
    return {uid_of(item) for item in items}


def _named(name: str, items: Iterable[Object]) -> Object | None:
    return next((item for item in items if item["metadata"]["name"] == name), None)
