"""The form of an answer that must be calls, so that the parser of the same name reads them all."""

from __future__ import annotations

import json
from collections.abc import Sequence

from forebay_runtime.parsing.call_format import Spelling
from forebay_runtime.parsing.formats import FORMATS
from forebay_runtime.parsing.tools import Function, ToolChoice
from forebay_runtime.structured import StructureSpec

_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def build_tool_grammar(
    tools: Sequence[Function],
    tool_choice: ToolChoice,
    tool_parser: str | None,
    parallel_tool_calls: bool = True,
) -> StructureSpec | None:
    """Build the structure of an answer to tool_choice required or named; None for the others.

    A named function is called once; otherwise parallel_tool_calls says whether there may be more.
    Arguments follow the schema of their function. Line breaks may stand in front, as models put
    them behind their reasoning.
    """
    if not tool_choice.is_forced:
        return None
    chosen = [tool for tool in tools if tool_choice.name in (None, tool.name)]
    spelling = FORMATS[tool_parser].spelling
    more = f"({spelling.between} call)*" if parallel_tool_calls and not tool_choice.name else ""
    calls = [_spell_call(tool, index, spelling) for index, tool in enumerate(chosen)]
    arguments = [_spell_arguments(tool, index) for index, tool in enumerate(chosen)]
    rules = [
        f"start: BREAKS? {spelling.begin} call {more} {spelling.end}",
        "BREAKS: /\\n{1,2}/",
        f"call: {' | '.join(calls)}",
        *arguments,
    ]
    return StructureSpec("grammar", "\n".join(rules) + "\n")


def _spell_call(tool: Function, index: int, spelling: Spelling) -> str:
    head = json.dumps(f'{{"name": "{tool.name}", "{spelling.key}": ')
    return f'{spelling.before} {head} arguments_{index} "}}" {spelling.behind}'


def _spell_arguments(tool: Function, index: int) -> str:
    schema = {**tool.parameters, "type": "object", "x-guidance": _SPACING}
    return f"arguments_{index}: %json {json.dumps(schema)}"
