"""Lists of one namespace that are read on demand, once for all services that ask within seconds.

For what is of interest only while something is wrong: watching it everywhere would cost more.
"""

import time
from collections.abc import Callable

from forebay_operator.cluster import Cluster
from forebay_operator.kinds import Kind
from forebay_operator.observed import Object

READ_AGAIN_SECONDS = 8.0
"""How often one service may ask."""
_FRESH_SECONDS = READ_AGAIN_SECONDS - 1.0
_KEEP_SECONDS = 60.0


class SharedLists:
    """The objects of one kind, by namespace."""

    def __init__(
        self,
        cluster: Cluster,
        kind: Kind,
        field_selector: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._kind = kind
        self._field_selector = field_selector
        self._clock = clock
        self._known: dict[str, tuple[float, tuple[Object, ...]]] = {}

    async def read(self, namespace: str) -> tuple[Object, ...]:
        """A namespace's objects, a few seconds old at most; ApiError where they may not be read."""
        now = self._clock()
        at, objects = self._known.get(namespace, (float("-inf"), ()))
        if now - at >= _FRESH_SECONDS:
            objects = (
                await self._cluster.list(self._kind, namespace, self._field_selector)
            ).objects
            self._known[namespace] = (now, objects)
        self._known = {
            name: known for name, known in self._known.items() if now - known[0] < _KEEP_SECONDS
        }
        return objects
