"""How a sentence for a client quotes what the client sent: its beginning, whatever its size."""

from __future__ import annotations

import reprlib
from typing import Any

MAX_CHARS = 200


def show(value: Any) -> str:
    """The beginning of a value's repr; what is not shown is not written out either."""
    return _SHORT.repr(value)[:MAX_CHARS]


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = MAX_CHARS
_SHORT.maxlist = _SHORT.maxdict = 16
_SHORT.maxlevel = 4
