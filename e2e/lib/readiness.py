"""Waiting for an InferenceService to serve, and saying what it says meanwhile."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from kubectl import Kubectl


class NotReadyError(RuntimeError):
    """The service did not become ready in time; the message holds its last conditions."""


def wait_until_ready(
    kubectl: Kubectl,
    name: str,
    namespace: str,
    timeout_seconds: float,
    say: Callable[[str], None],
) -> None:
    """Return when `Ready` is True for the current generation; `say` each condition that changed.

    Raises: NotReadyError after `timeout_seconds`.
    """
    said: dict[str, str] = {}
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        service = kubectl.get("inferenceservices.forebay.dev", name, namespace) or {}
        for kind, text in describe_conditions(service).items():
            if said.get(kind) != text:
                say(f"  {text}")
                said[kind] = text
        if is_ready(service):
            return
        time.sleep(0.5)
    raise NotReadyError(
        "\n".join([f"{namespace}/{name} was not ready in {timeout_seconds:.0f} s", *said.values()])
    )


def describe_conditions(service: Mapping[str, Any]) -> dict[str, str]:
    """Return a line for each condition, by its type."""
    return {
        one["type"]: f"{one['type']}={one['status']} {one['reason']}: {one.get('message', '')}"
        for one in service.get("status", {}).get("conditions", [])
    }


def is_ready(service: Mapping[str, Any]) -> bool:
    """Say whether `Ready` is True and speaks of the spec as it is now."""
    generation = service.get("metadata", {}).get("generation")
    return any(
        one["type"] == "Ready"
        and one["status"] == "True"
        and one.get("observedGeneration") == generation
        for one in service.get("status", {}).get("conditions", [])
    )
