"""How long there has been no room for a new pod that an old one could make by going.

What no old pod can give is worth none: a node that does not exist, or is too small even when it is
empty, another pool than the old pods run in, more than a quota has in all.
"""

import re
from collections.abc import Iterable

from forebay_budget.quantity import parse_quantity
from forebay_operator.observed import Object
from forebay_operator.planning.causes.scheduling import could_run_on
from forebay_operator.planning.pods import pod_condition
from forebay_operator.planning.rollout.progress import Progress
from forebay_operator.planning.situation import Situation
from forebay_operator.planning.timestamps import seconds_since

_ROOM_ON_A_NODE = ("Insufficient ", "Too many pods", "free ports", "volume count")
"""What the scheduler says where a pod that leaves that very node may be what a new one needs."""
_ROOM_ANYWHERE = ("anti-affinity", "ReadWriteOncePod")
_QUOTA = re.compile(r"requested: (?P<requested>\S+), used: \S+, limited: (?P<limited>[^\s;]+)")


def seconds_without_room(situation: Situation, pod: Object, old: Iterable[Object]) -> float:
    """How long a pod has found no node, if one of the old pods stands where it could run."""
    scheduled = pod_condition(pod, "PodScheduled")
    if scheduled.get("reason") != "Unschedulable":
        return 0.0
    said = scheduled.get("message", "")
    is_on_node = any(words in said for words in _ROOM_ON_A_NODE)
    is_room = is_on_node and _could_follow(situation, pod, old)
    if not is_room and not any(words in said for words in _ROOM_ANYWHERE):
        return 0.0
    return max(0.001, seconds_since(scheduled["lastTransitionTime"], situation.now))


def seconds_over_quota(progress: Progress) -> float:
    """How long a quota has had no room; one that wants resources named takes no pod at all."""
    cause = progress.creation_cause
    if cause is None or "exceeded quota" not in cause.message:
        return 0.0
    return progress.refused_seconds if _is_within(cause.message) else 0.0


def _could_follow(situation: Situation, pod: Object, old: Iterable[Object]) -> bool:
    """Whether an old pod runs where this one could; yes where nobody may know the nodes."""
    nodes = situation.observed.nodes
    if not nodes:
        return True
    homes = {one["spec"].get("nodeName") for one in old}
    near = (node for node in nodes if node["metadata"]["name"] in homes)
    return any(could_run_on(pod, node) for node in near)


def _is_within(sentence: str) -> bool:
    """Whether a quota is large enough for the pod that it refused; yes where it does not say."""
    found = _QUOTA.search(sentence)
    if found is None:
        return True
    requested, limited = _amounts(found["requested"]), _amounts(found["limited"])
    return all(amount <= limited.get(name, amount) for name, amount in requested.items())


def _amounts(text: str) -> dict[str, float]:
    """`pods=1,requests.cpu=500m`; what is no quantity is left out."""
    pairs = (part.partition("=") for part in text.split(","))
    return {name: found for name, _, amount in pairs if (found := _read(amount)) is not None}


def _read(quantity: str) -> float | None:
    """CPU's thousandths count as that."""
    try:
        if quantity.endswith("m"):
            return int(quantity[:-1]) / 1000
        return parse_quantity(quantity)
    except ValueError:
        return None
