"""Keep pods on the nodes that a plan was made for: required node affinity on their labels.

A pin is proven before it is written: it matches every node that was chosen, and none that will not
do. Memory that labels give as a number is asked for as a minimum, so larger nodes that come later
are used too.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from forebay_operator.planning.nodes.gpus import GpuNode
from forebay_operator.planning.nodes.selector import Term, labels_of, matches_term
from forebay_operator.planning.situation import Manifest

_HOSTNAME = "kubernetes.io/hostname"


def build_pin(
    chosen: Iterable[GpuNode], unfit: Iterable[GpuNode], least_memory_mib: int
) -> tuple[Term, ...]:
    """Terms of which one must hold; empty where pods may go wherever their GPUs are.

    least_memory_mib is what the plan needs of one GPU.
    """
    unfit, groups = tuple(unfit), _group(chosen)
    is_numbered = all(group[0].reading.memory_form == "MiB" for group in groups)
    if not unfit and not is_numbered:
        return ()
    terms = [_choose_term(group, unfit, least_memory_mib) for group in groups]
    return tuple(term for term in terms if term) if all(terms) else ()


def add_pin(affinity: Manifest, pin: tuple[Term, ...]) -> Manifest:
    """An affinity whose every required term also asks for one of the pin's."""
    if not pin:
        return affinity
    node_affinity = {**affinity.get("nodeAffinity", {})}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms: list[dict[str, Any]] = required.get("nodeSelectorTerms") or [{}]
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": [
            {**term, "matchExpressions": [*term.get("matchExpressions", ()), *expressions]}
            for term in terms
            for expressions in (one["matchExpressions"] for one in pin)
        ]
    }
    return affinity | {"nodeAffinity": node_affinity}


def _group(chosen: Iterable[GpuNode]) -> list[list[GpuNode]]:
    """Nodes that the same expressions can describe."""
    groups: dict[tuple[str, int], list[GpuNode]] = {}
    for node in chosen:
        key = node.reading.memory_key, node.reading.num_sharers
        groups.setdefault(key, []).append(node)
    return [groups[key] for key in sorted(groups)]


def _choose_term(group: list[GpuNode], unfit: tuple[GpuNode, ...], least_memory_mib: int) -> Term:
    """The widest term that lets every node of the group in and the unfit out; empty if none does.

    None does where labels, not even hostnames, tell such nodes apart.
    """
    for term in _candidates(group, least_memory_mib):
        lets_in = all(matches_term(term, one.node) for one in group)
        if lets_in and not any(matches_term(term, one.node) for one in unfit):
            return term
    return {}


def _candidates(group: list[GpuNode], least_memory_mib: int) -> Iterator[Term]:
    reading = group[0].reading
    memory = [_ask_for_memory(group, least_memory_mib)] if reading.memory_key else []
    if memory:
        yield {"matchExpressions": memory}
    if products := _values(group, reading.product_key):
        product = {"key": reading.product_key, "operator": "In", "values": products}
        yield {"matchExpressions": [*memory, product]}
    if names := _values(group, _HOSTNAME):
        yield {"matchExpressions": [{"key": _HOSTNAME, "operator": "In", "values": names}]}


def _ask_for_memory(group: list[GpuNode], least_memory_mib: int) -> Manifest:
    """The label counts a whole GPU, also where several pods share it."""
    reading = group[0].reading
    if reading.memory_form == "key":
        return {"key": reading.memory_key, "operator": "Exists"}
    if reading.memory_form == "MiB":
        bound = least_memory_mib * reading.num_sharers - 1
        return {"key": reading.memory_key, "operator": "Gt", "values": [str(bound)]}
    values = _values(group, reading.memory_key)
    return {"key": reading.memory_key, "operator": "In", "values": values}


def _values(group: list[GpuNode], key: str) -> list[str]:
    """What a label says on these nodes; nothing where one of them lacks it."""
    found = [labels_of(one.node).get(key, "") for one in group]
    return sorted(set(found)) if all(found) else []
