"""Kubernetes' node selectors: which nodes terms, expressions and tolerations let in.

The same rules judge the user's affinity and prove a pin before it is written.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from forebay_operator.observed import Object

Term = Mapping[str, Any]
"""A node selector term: matchExpressions and matchFields, all of which must hold."""


def labels_of(node: Object) -> Mapping[str, str]:
    """A node's labels."""
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    return labels


def may_run_on(pod_spec: Object, node: Object) -> bool:
    """Whether a pod's own choice of nodes, by selector and affinity, includes this one."""
    wanted: Mapping[str, str] = pod_spec.get("nodeSelector") or {}
    if not wanted.items() <= labels_of(node).items():
        return False
    required = read_required(pod_spec.get("affinity") or {})
    return required is None or matches_any(required, node)


def read_required(affinity: Object) -> Sequence[Term] | None:
    """The required terms of a node affinity; None where it asks for nothing."""
    node_affinity = affinity.get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if not required else required.get("nodeSelectorTerms") or ()


def matches_any(terms: Iterable[Term], node: Object) -> bool:
    """Whether one term matches; none does where there are none."""
    return any(matches_term(term, node) for term in terms)


def matches_term(term: Term, node: Object) -> bool:
    """Whether all of a term's parts hold; an empty term matches no node."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    names = {"metadata.name": node["metadata"]["name"]}
    return all(_holds(one, labels_of(node)) for one in expressions) and all(
        _holds(one, names) for one in fields
    )


def tolerates(tolerations: Iterable[Object], taint: Object) -> bool:
    """Whether a taint keeps no pod away that has these tolerations."""
    if taint.get("effect") not in ("NoSchedule", "NoExecute"):
        return True
    return any(_is_tolerated(taint, toleration) for toleration in tolerations)


def write_selector(terms: Iterable[Term]) -> str:
    """Terms as `kubectl get nodes -l` takes them; several are joined by `or`."""
    written = (
        ",".join(_write(one) for one in term.get("matchExpressions") or ()) for term in terms
    )
    return " or ".join(written)


def _holds(expression: Object, values: Mapping[str, str]) -> bool:
    key, operator = expression["key"], expression["operator"]
    listed = expression.get("values") or ()
    if operator == "In":
        return key in values and values[key] in listed
    if operator == "NotIn":
        return key not in values or values[key] not in listed
    if operator == "Exists":
        return key in values
    if operator == "DoesNotExist":
        return key not in values
    return _compares(operator, values.get(key, ""), listed[0] if listed else "")


def _compares(operator: str, found: str, bound: str) -> bool:
    try:
        number, limit = int(found), int(bound)
    except ValueError:
        return False
    return number > limit if operator == "Gt" else number < limit


def _is_tolerated(taint: Object, toleration: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    operator, key = toleration.get("operator") or "Equal", toleration.get("key") or ""
    if operator == "Exists":
        return key in ("", taint["key"])
    is_equal = toleration.get("value", "") == taint.get("value", "")
    return operator == "Equal" and key == taint["key"] and bool(is_equal)


_COMPARISONS = {"Gt": ">", "Lt": "<"}


def _write(expression: Object) -> str:
    key, operator = expression["key"], expression["operator"]
    values: list[str] = expression.get("values") or []
    if operator in _COMPARISONS:
        return f"{key}{_COMPARISONS[operator]}{values[0]}"
    if operator == "In" and len(values) == 1:
        return f"{key}={values[0]}"
    if operator in ("In", "NotIn"):
        return f"{key} {operator.lower()} ({','.join(values)})"
    return key if operator == "Exists" else f"!{key}"
