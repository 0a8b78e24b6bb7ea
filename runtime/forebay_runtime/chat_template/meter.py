"""What one rendering may cost: seconds, bytes of everything it makes, and objects it walks.

The meter of the rendering that runs is a context variable: templates are shared by threads.
"""

from __future__ import annotations

import time
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from contextvars import ContextVar
from typing import Any

from jinja2 import Undefined
from jinja2.utils import Namespace

MAX_SECONDS = 10.0
"""A template that takes longer for one prompt is taken to have no end."""
MIN_BYTES = 64 << 20
MAX_BYTES = 256 << 20
"""Of all the text and lists that one rendering makes, whether it keeps them or not."""
BYTES_PER_INPUT_BYTE = 32
MAX_STEPS = 2_000_000
"""Of objects looked at where an operation looks at all that a value holds."""

_ELEMENT_BYTES = 16


class ChatTemplateError(ValueError):
    """The messages cannot be rendered; the message is one sentence for the client."""


class TemplateLimit(ChatTemplateError):
    """The template was stopped."""


class Meter:
    """Counts one rendering."""

    def __init__(self, input_bytes: int = 0) -> None:
        """input_bytes: how much the template was given to render."""
        allowed = max(MIN_BYTES, BYTES_PER_INPUT_BYTE * input_bytes)
        self._num_bytes = min(MAX_BYTES, allowed)
        self._num_steps = MAX_STEPS
        self._deadline = time.monotonic() + MAX_SECONDS

    def look_at_clock(self) -> None:
        """Raises: TemplateLimit if the time is over."""
        if time.monotonic() > self._deadline:
            raise TemplateLimit(f"it took longer than {MAX_SECONDS:g} seconds")

    def charge(self, num_bytes: int) -> None:
        """Count what is about to be made.

        Raises: TemplateLimit if that is too much.
        """
        self.look_at_clock()
        self._num_bytes -= num_bytes
        if self._num_bytes < 0:
            raise TemplateLimit("it made more text than a prompt can need")

    def size(self, value: Any) -> int:
        """About how many bytes the value takes when it is written out, however it is shared.

        Raises: TemplateLimit if it is too much to look at.
        """
        if isinstance(value, str):
            return text_bytes(value)
        num_bytes, left = 0, [value]
        while left:
            inner = left.pop()
            num_bytes += _ELEMENT_BYTES
            if isinstance(inner, str):
                num_bytes += text_bytes(inner)
            elif isinstance(inner, int):
                num_bytes += inner.bit_length() // 2
            elif not isinstance(inner, float | Undefined | None):
                parts = _parts(inner)
                self._step(len(parts))
                left.extend(parts)
        self._step(0)
        return num_bytes

    def _step(self, count: int) -> None:
        self.look_at_clock()
        self._num_steps -= count + 1
        if self._num_steps < 0:
            raise TemplateLimit("it handled more values than a prompt can need")


METER: ContextVar[Meter] = ContextVar("meter")
"""The meter of the rendering that runs."""


def text_bytes(text: str) -> int:
    """At least as many bytes as the text takes."""
    return len(text) if text.isascii() else 4 * len(text)


def _parts(value: Any) -> list[Any]:
    """What a container holds; nothing for whatever is written out without it."""
    if isinstance(value, Namespace):
        value = object.__getattribute__(value, "_Namespace__attrs")
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset | KeysView | ValuesView | ItemsView):
        return list(value)
    return []
