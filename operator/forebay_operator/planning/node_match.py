"""Which nodes a pod may run on, by its node selector and its required node affinity.

Taints and what other pods hold are left to the scheduler, whose own sentence speaks of them.
"""

from collections.abc import Mapping

from forebay_operator.observed import Object


def may_run_on(pod_spec: Object, node: Object) -> bool:
    """Whether a pod's own choice of nodes includes this one."""
    labels = node["metadata"].get("labels") or {}
    wanted = pod_spec.get("nodeSelector") or {}
    if any(labels.get(name) != text for name, text in wanted.items()):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_meets(term, node, labels) for term in required.get("nodeSelectorTerms") or ())


def _meets(term: Object, node: Object, labels: Mapping[str, str]) -> bool:
    """A term without any requirement matches nothing, as the API says."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    names = {"metadata.name": node["metadata"]["name"]}
    return bool(expressions or fields) and (
        all(_holds(one, labels) for one in expressions)
        and all(_holds(one, names) for one in fields)
    )


def _holds(requirement: Object, labels: Mapping[str, str]) -> bool:
    found = labels.get(requirement["key"])
    values: list[str] = requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt":
            return _number(found) > _number(values[0])
        case _:
            return found is not None and _number(found) < _number(values[0])


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else -1
