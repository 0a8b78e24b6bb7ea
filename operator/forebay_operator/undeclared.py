"""Statuses for a CRD that is older than this operator, and does not have all of their fields.

Where CRDs are installed apart, the operator may be upgraded first: what an older CRD can say must
be said all the same, or an old status would stand for ever.
"""

import logging
import re
from typing import Any

from forebay_operator.cluster import ApiError, Cluster
from forebay_operator.kinds import Kind
from forebay_operator.observed import Object

log = logging.getLogger(__name__)

_UNDECLARED = re.compile(r"(\.status\S*): field not declared in schema")
_ITEM = re.compile(r"\[[^]]*\]")


async def apply_status(cluster: Cluster, kind: Kind, manifest: Object) -> Object:
    """Apply a status, without the fields that the CRD does not have.

    The API server names them one level after the other, so it may take a few tries.
    """
    while True:
        try:
            return await cluster.apply(kind, manifest, "status")
        except ApiError as error:
            paths = _UNDECLARED.findall(error.message)
            shorter = drop_fields(manifest, paths)
            if shorter == manifest:
                raise
            name = f"{kind.plural}.{kind.group}"
            log.warning("CRD is older than the operator name=%s lacks=%s", name, ", ".join(paths))
            manifest = shorter


def drop_fields(manifest: Object, paths: list[str]) -> Object:
    """A manifest without fields, each named as in `.status.draining[0].pod`: of every item."""
    for path in paths:
        manifest = _drop(manifest, _ITEM.sub("", path).split(".")[1:])
    return manifest


def _drop(part: Any, names: list[str]) -> Any:
    if isinstance(part, list | tuple):
        return [_drop(one, names) for one in part]
    if not isinstance(part, dict) or names[0] not in part:
        return part
    if len(names) == 1:
        return {name: value for name, value in part.items() if name != names[0]}
    return {**part, names[0]: _drop(part[names[0]], names[1:])}
