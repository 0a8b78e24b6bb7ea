"""Words for a Job that somebody holds back before it may start."""

from forebay_operator.kinds import MANAGED_SELECTOR
from forebay_operator.observed import Object
from forebay_operator.planning.causes.cause import Cause

SUSPENDED = "InspectionSuspended"
_QUEUES = {
    "kueue.x-k8s.io/queue-name": ("Kueue", "see kubectl describe workloads.kueue.x-k8s.io"),
    "volcano.sh/queue-name": ("Volcano", "see kubectl describe podgroups.scheduling.volcano.sh"),
}
"""Labels by which a queueing system is asked, its name, and where it says what it waits for."""


def explain_suspension(job: Object) -> Cause:
    """Who holds the inspection back, as far as its labels tell."""
    name, labels = job["metadata"]["name"], job["metadata"].get("labels") or {}
    found = next(((key, *_QUEUES[key]) for key in _QUEUES if labels.get(key)), None)
    if found is None:
        held = "suspended by somebody"
        advice = f"set spec.suspend of the Job to false: kubectl edit job {name}"
    else:
        key, system, advice = found
        held = f"suspended until {system} admits it to the queue {labels[key]}"
        advice = f"{advice}, or have it leave Jobs with the label {MANAGED_SELECTOR} alone"
    return Cause(
        SUSPENDED,
        f"The Job {name}, which reads the model's headers, is {held}; {advice}.",
    )
