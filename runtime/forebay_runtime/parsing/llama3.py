"""Calls as Llama 3 models write them: {"name": …, "parameters": {…}}, bare.

Several are separated by `;`, and `<|python_tag|>` may stand in front. Any object in the text may
be a call, so only one that has both a known name and parameters is.
"""

from __future__ import annotations

from forebay_runtime.parsing.call_format import CallFormat, Spelling
from forebay_runtime.parsing.envelope import Envelope
from forebay_runtime.parsing.sink import Sink

PYTHON_TAG = "<|python_tag|>"


def _build_reader(marker: str, names: frozenset[str], sink: Sink) -> Envelope:
    envelope = Envelope("" if marker == "{" else marker, names, sink, needs_arguments=True)
    if marker == "{":
        envelope.read(marker, 0)
    return envelope


LLAMA3 = CallFormat(
    (PYTHON_TAG, "{"),
    _build_reader,
    Spelling("parameters", '"; "'),
    special_tokens=(PYTHON_TAG,),
    separators=";",
)
