"""The formats of tool calls by the names of their parsers."""

from __future__ import annotations

from forebay_runtime.parsing.call_format import CallFormat
from forebay_runtime.parsing.call_list import CALL_LIST
from forebay_runtime.parsing.hermes import HERMES
from forebay_runtime.parsing.llama3 import LLAMA3
from forebay_runtime.parsing.mistral import MISTRAL

FORMATS: dict[str | None, CallFormat] = {
    "hermes": HERMES,
    "llama3_json": LLAMA3,
    "mistral": MISTRAL,
    None: CALL_LIST,
}
"""None is for models that have no format of their own, when they must call all the same."""
