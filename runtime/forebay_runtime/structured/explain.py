"""From the library's error messages to sentences for a client. Pure."""

from __future__ import annotations

import re

from forebay_runtime.structured.spec import TITLES, Kind

_MAX_CHARS = 300
_PLACE = re.compile(r"^(at )?(\d+)\(\d+\): ")
_EXCERPT = re.compile(r"\n\s*\d+ \| .*", re.DOTALL)
_WRAPPING = re.compile(
    "^(failed to compile JSON schema: "
    '|failed to parse "%json": '
    r'|invalid regex ".*?" \(in regex\): )',
    re.DOTALL,
)
_SPACES = re.compile(r"\s+")


def explain(kind: Kind, message: str) -> str:
    """One sentence that says what is wrong with a structure.

    The library quotes the source around the fault; that is left out, as the client has it.
    """
    reason = _EXCERPT.sub("", message)
    reason = _WRAPPING.sub("", _PLACE.sub("", reason))
    reason = _SPACES.sub(" ", reason).strip()
    return f"The {TITLES[kind]} cannot be used: {reason[:_MAX_CHARS]}"


def explain_stop(reason: str, message: str = "") -> str:
    """Why there is no way on, by the library's reason for stopping and its message."""
    if reason in ("NoExtension", "NoExtensionBias"):
        return "The structure allows no further token, and no end"
    detail = message.partition("\n")[0] or reason
    return f"The structure is too complex to go on with ({detail[:_MAX_CHARS]})"


SLOW = "The structure is too complex: to find what may follow takes too long"
