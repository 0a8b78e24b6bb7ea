"""What the platform team chose, read from the environment of the operator's container."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from forebay_operator.observed import Settings


class SettingsError(ValueError):
    """A required variable is missing; the message names it."""


@dataclass(frozen=True)
class ProcessSettings:
    """What this process is told: what decisions may look at, and how it runs itself."""

    decisions: Settings
    identity: str
    lease_namespace: str
    namespaces: tuple[str, ...] = ()
    """Namespaces that are served; empty: all."""


def read_settings(environ: Mapping[str, str] = os.environ) -> ProcessSettings:
    """Read the environment; SettingsError where a required variable is missing."""
    decisions = Settings(
        runtime_image=_required(environ, "FOREBAY_RUNTIME_IMAGE"),
        operator_image=_required(environ, "FOREBAY_OPERATOR_IMAGE"),
        hub_endpoint=environ.get("FOREBAY_HUB_ENDPOINT", ""),
        image_pull_policy=environ.get("FOREBAY_IMAGE_PULL_POLICY") or "IfNotPresent",
    )
    namespaces = environ.get("FOREBAY_WATCH_NAMESPACES", "").split(",")
    return ProcessSettings(
        decisions=decisions,
        identity=environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
        lease_namespace=environ.get("POD_NAMESPACE") or "forebay-system",
        namespaces=tuple(name.strip() for name in namespaces if name.strip()),
    )


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise SettingsError(f"The environment variable {name} is missing; set it to an image.")
    return value
