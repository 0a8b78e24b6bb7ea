"""Does a JSON schema have a value that ends? One that requires itself has none. Pure.

The library takes such a schema and would have the model write until its last token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_MAPS = ("properties", "patternProperties", "$defs", "definitions")


def has_finite_value(schema: dict[str, Any]) -> bool:
    """Is there a value of finite size that the schema does not rule out by requiring itself?

    What is not understood counts as finite: this is to refuse nothing that could be met.
    """
    finite: set[int] = set()
    nodes = list(_walk(schema))
    while True:
        found = {id(node) for node in nodes if _is_finite(node, schema, finite)}
        if id(schema) in found or found == finite:
            return id(schema) in found
        finite = found


def _walk(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for key, value in node.items():
            children = value.values() if key in _MAPS and isinstance(value, dict) else [value]
            for child in children:
                yield from _walk(child)
    elif isinstance(node, list):
        for item in node:
            yield from _walk(item)


def _is_finite(node: dict[str, Any], root: dict[str, Any], finite: set[int]) -> bool:
    """Judged by the parts known to be finite so far."""

    def is_known(part: Any) -> bool:
        return not isinstance(part, dict) or id(part) in finite

    if "const" in node or "enum" in node:
        return True
    if "$ref" in node and not is_known(_resolve(root, node["$ref"])):
        return False
    for key in ("anyOf", "oneOf"):
        if isinstance(node.get(key), list) and not any(map(is_known, node[key])):
            return False
    if not all(map(is_known, _list(node.get("allOf")))):
        return False
    return all(map(is_known, _required_parts(node)))


def _required_parts(node: dict[str, Any]) -> list[Any]:
    """The schemas that every value of the node holds a value of."""
    if node.get("type") == "object":
        properties = node.get("properties")
        named = properties if isinstance(properties, dict) else {}
        others = node.get("additionalProperties", True)
        return [
            named.get(name, others) for name in _list(node.get("required")) if isinstance(name, str)
        ]
    least = node.get("minItems", 0)
    if node.get("type") == "array" and isinstance(least, int) and least > 0:
        first = _list(node.get("prefixItems"))[:least]
        return first if len(first) == least else [*first, node.get("items", True)]
    return []


def _resolve(root: dict[str, Any], reference: Any) -> Any:
    """What a reference within the schema points at; True for any other."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return True
    target: Any = root
    for step in reference.removeprefix("#").removeprefix("/").split("/"):
        if step and not isinstance(target, dict):
            return True
        name = step.replace("~1", "/").replace("~0", "~")
        target = target.get(name, True) if step else target
    return target


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
