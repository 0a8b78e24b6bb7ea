"""The functions that a chat offers to the model, read from what the client sent.

Called by the server before anything else looks at them: whatever passes here can be rendered into
a prompt, turned into a grammar and matched against a call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from forebay_runtime.quoting import show

ChoiceKind = Literal["none", "auto", "required", "named"]


@dataclass(frozen=True)
class Function:
    """One tool: its name, and the JSON schema that its arguments follow."""

    name: str
    parameters: Mapping[str, Any]
    source: Mapping[str, Any]
    """The tool as the client wrote it, which is what a chat template sees."""


@dataclass(frozen=True)
class ToolChoice:
    """Whether the model may or must call; name is set for "named" and for nothing else."""

    kind: ChoiceKind = "none"
    name: str | None = None

    @property
    def is_forced(self) -> bool:
        """Must the answer be a call?"""
        return self.kind in ("required", "named")


@dataclass(frozen=True)
class Tools:
    """What a chat may call and how it was told to choose."""

    functions: tuple[Function, ...] = ()
    choice: ToolChoice = field(default_factory=ToolChoice)


_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_MAX_TOOLS = 1024


def parse_tools(tools: Any, tool_choice: Any) -> Tools:
    """Read the fields `tools` and `tool_choice` of a chat, either of which may be None.

    Raises: ValueError with a sentence that names the field, its value and what is allowed.
    """
    functions = _parse_functions(tools)
    if tools is None and tool_choice not in (None, "none"):
        raise ValueError(f"tool_choice is {show(tool_choice)}, which needs tools: there are none")
    return Tools(functions, _parse_choice(tool_choice, functions))


def _parse_functions(tools: Any) -> tuple[Function, ...]:
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise ValueError(f"tools must be a list of functions, not {show(tools)}")
    if len(tools) > _MAX_TOOLS:
        raise ValueError(f"tools has {len(tools)} entries; at most {_MAX_TOOLS} are allowed")
    functions = tuple(_parse_function(tool, f"tools.{index}") for index, tool in enumerate(tools))
    seen: set[str] = set()
    for index, function in enumerate(functions):
        if function.name in seen:
            raise ValueError(f"tools.{index}.function.name {function.name!r} occurs twice")
        seen.add(function.name)
    return functions


def _parse_function(tool: Any, path: str) -> Function:
    if not isinstance(tool, dict):
        raise ValueError(f"{path} must be an object, not {show(tool)}")
    if tool.get("type", "function") != "function":
        raise ValueError(f"{path}.type must be 'function', not {show(tool['type'])}")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise ValueError(f"{path}.function must be an object with a name, not {show(function)}")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        raise ValueError(
            f"{path}.function.name must be 1 to 64 letters, digits, '_' or '-', not {show(name)}"
        )
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise ValueError(f"{path}.function.description must be a string, not {show(description)}")
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise ValueError(
            f"{path}.function.parameters must be a JSON schema, not {show(parameters)}"
        )
    return Function(name, parameters or {"type": "object"}, {"type": "function"} | tool)


def _parse_choice(choice: Any, functions: tuple[Function, ...]) -> ToolChoice:
    if choice is None:
        return ToolChoice("auto" if functions else "none")
    if choice == "none":
        return ToolChoice("none")
    if choice in ("auto", "required"):  # of nothing: nothing, as OpenAI and vLLM have it
        return ToolChoice(choice if functions else "none")
    name = _read_named(choice)
    if name not in {function.name for function in functions}:
        known = ", ".join(function.name for function in functions) or "none"
        raise ValueError(
            f"tool_choice names the function {show(name)}, which is not in tools: {known[:200]}"
        )
    return ToolChoice("named", name)


def _read_named(choice: Any) -> str:
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or choice.get("type", "function") != "function":
        raise ValueError(
            "tool_choice must be 'none', 'auto', 'required' or "
            f"{{'type': 'function', 'function': {{'name': ...}}}}, not {show(choice)}"
        )
    return name
