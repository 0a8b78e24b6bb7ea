"""Waiting for an InferenceService to serve, and saying what it says meanwhile."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from kubectl import Kubectl

STALLED_SECONDS = 60.0
"""How long a service may be stalled before nobody waits for it any more."""


class NotReadyError(RuntimeError):
    """The service did not become ready in time; the message holds its conditions."""


def wait_until_ready(
    kubectl: Kubectl,
    name: str,
    namespace: str,
    timeout_seconds: float,
    say: Callable[[str], None],
) -> None:
    """Return when `Ready` is True for the current generation; `say` each condition that changed.

    Raises: NotReadyError after `timeout_seconds`, or sooner where the service stays stalled.
    """
    lines: list[str] = []
    began = moved = time.monotonic()
    while (now := time.monotonic()) < min(began + timeout_seconds, moved + STALLED_SECONDS):
        service = kubectl.get("inferenceservices.forebay.dev", name, namespace) or {}
        said, lines = lines, describe_conditions(service)
        for line in lines:
            if line not in said:
                say(f"  {line}")
        if is_true(service, "Ready"):
            return
        if not is_true(service, "Stalled"):
            moved = now
        time.sleep(0.5)
    raise NotReadyError("\n  ".join([f"{namespace}/{name} is not ready:", *lines]))


def describe_conditions(service: Mapping[str, Any]) -> list[str]:
    """Return a line for each condition."""
    return [
        f"{one['type']}={one['status']} {one['reason']}: {one.get('message', '')}"
        for one in service.get("status", {}).get("conditions", [])
    ]


def is_true(service: Mapping[str, Any], condition: str) -> bool:
    """Say whether a condition is True and speaks of the spec as it is now."""
    generation = service.get("metadata", {}).get("generation")
    return any(
        one["type"] == condition
        and one["status"] == "True"
        and one.get("observedGeneration") == generation
        for one in service.get("status", {}).get("conditions", [])
    )
