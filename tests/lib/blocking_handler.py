"""A kopf handler that never gives the event loop back once a ConfigMap named `block` appears."""

import time
from typing import Any

import kopf


@kopf.on.event("", "v1", "configmaps")
async def block(name: str | None, **_: Any) -> None:
    """Hold the loop, as code does that computes without end or waits without await."""
    while name == "block":
        time.sleep(0.1)
