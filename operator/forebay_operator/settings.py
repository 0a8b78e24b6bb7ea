"""What the platform team chose, read from the environment of the operator's container."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from forebay_operator.observed import Settings


class SettingsError(ValueError):
    """A variable is missing or cannot be understood; the message names it."""


@dataclass(frozen=True)
class ProcessSettings:
    """What this process is told: what decisions may look at, and how it runs itself."""

    decisions: Settings
    identity: str
    lease_namespace: str
    namespaces: tuple[str, ...] = ()
    """Namespaces that are served; empty: all."""
    metrics_address: tuple[str, int] | None = None
    """Where metrics are served; an empty host is all, port 0 any free one. None: nowhere."""


def read_settings(environ: Mapping[str, str] = os.environ) -> ProcessSettings:
    """Read the environment; SettingsError where a variable is missing or wrong."""
    decisions = Settings(
        runtime_image=_required(environ, "FOREBAY_RUNTIME_IMAGE"),
        operator_image=_required(environ, "FOREBAY_OPERATOR_IMAGE"),
        hub_endpoint=environ.get("FOREBAY_HUB_ENDPOINT", ""),
        hub_ca=environ.get("FOREBAY_HUB_CA", ""),
        image_pull_policy=environ.get("FOREBAY_IMAGE_PULL_POLICY") or "IfNotPresent",
    )
    namespaces = environ.get("FOREBAY_WATCH_NAMESPACES", "").split(",")
    return ProcessSettings(
        decisions=decisions,
        identity=environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
        lease_namespace=environ.get("POD_NAMESPACE") or "forebay-system",
        namespaces=tuple(name.strip() for name in namespaces if name.strip()),
        metrics_address=_address(environ, "FOREBAY_METRICS_PORT"),
    )


def _address(environ: Mapping[str, str], name: str) -> tuple[str, int] | None:
    value = environ.get(name, "")
    host, _, port = value.rpartition(":")
    if value and not (port.isdecimal() and int(port) < 2**16):
        raise SettingsError(
            f"The environment variable {name} is {value!r}; set it to a port, as in 8081, or to an "
            "address and a port, as in 127.0.0.1:8081."
        )
    return (host, int(port)) if value else None


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise SettingsError(f"The environment variable {name} is missing; set it to an image.")
    return value
