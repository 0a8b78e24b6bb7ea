"""What scaling decides by: the numbers of all of a service's ready pods, added up.

What a pod said before it stopped being ready, or was told to go, is over: a crash has emptied its
queue, and what a leaving pod still holds needs no other.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from forebay_operator.observed import PodLoad
from forebay_operator.planning.pods import is_ready, load_of
from forebay_operator.planning.situation import Manifest, Situation


@dataclass(frozen=True)
class ScalingInputs:
    """What a service's pods say and are, added up: what scaling decides by and status shows."""

    num_waiting: int = 0
    num_running: int = 0
    num_ready: int = 0
    num_pending: int = 0
    """Wanted replicas that are not ready, or not even created."""
    num_silent: int = 0
    """Ready pods that did not answer; each counts as full."""
    kv_cache_usage: float | None = None
    """Mean of the pods that answered, between 0 and 1; None where none did."""
    gpu_utilization: float | None = None
    """Mean of the pods that know theirs, between 0 and 1; None where none does."""


@dataclass(frozen=True)
class Queue:
    """What all pods together hold; a ready pod that does not answer counts as full."""

    num_ready: int
    num_pending: int
    num_running: int
    num_waiting: int

    @property
    def num_replicas(self) -> int:
        return self.num_ready + self.num_pending


def read_inputs(situation: Situation, num_replicas: int) -> ScalingInputs:
    """Add up the ready pods; replicas that are not ready, or not even created, are pending."""
    ready = [pod for pod in situation.observed.pods if is_ready(pod)]
    loads = [load_of(pod, situation.observed.loads) for pod in ready]
    said = [load for load in loads if load is not None]
    num_ready = min(len(ready), num_replicas)
    return ScalingInputs(
        num_waiting=sum(load.num_waiting for load in said),
        num_running=sum(load.num_running for load in said),
        num_ready=num_ready,
        num_pending=num_replicas - num_ready,
        num_silent=len(ready) - len(said),
        kv_cache_usage=_mean(load.kv_cache_usage for load in said),
        gpu_utilization=_mean(_gpu_utilizations(said)),
    )


def to_queue(inputs: ScalingInputs, max_num_seqs: int) -> Queue:
    """A silent pod is full of running requests, which keeps it and its peers; no queue is invented
    for it, which would call for more pods that may be just as silent."""
    num_running = inputs.num_running + inputs.num_silent * max_num_seqs
    return Queue(inputs.num_ready, inputs.num_pending, num_running, inputs.num_waiting)


def describe_inputs(inputs: ScalingInputs) -> Manifest:
    """`status.scaling.inputs`; what nobody knows is absent."""
    shares = {
        "kvCacheUsagePercent": inputs.kv_cache_usage,
        "gpuUtilizationPercent": inputs.gpu_utilization,
    }
    return {
        "waiting": inputs.num_waiting,
        "running": inputs.num_running,
        "ready": inputs.num_ready,
        "pending": inputs.num_pending,
        **({"silent": inputs.num_silent} if inputs.num_silent else {}),
        **{name: round(100 * share) for name, share in shares.items() if share is not None},
    }


def _gpu_utilizations(loads: Iterable[PodLoad]) -> Iterable[float]:
    return (load.gpu_utilization for load in loads if load.gpu_utilization is not None)


def _mean(shares: Iterable[float]) -> float | None:
    known = list(shares)
    return sum(known) / len(known) if known else None
