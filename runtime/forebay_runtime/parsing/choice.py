"""Which parsers a model's answers need, by a flag or by the markers in its chat template."""

from __future__ import annotations

from collections.abc import Mapping

from forebay_runtime.parsing import hermes, llama3, mistral, reasoning
from forebay_runtime.parsing.formats import FORMATS
from forebay_runtime.quoting import show

_DEEPSEEK = "<｜Assistant｜>"
"""Models with this turn think without an opening tag."""

_REASONING = {"think": "think", "qwen3": "think", "deepseek_r1": "deepseek_r1"}
_TOOLS = {
    "hermes": "hermes",
    "qwen": "hermes",
    "llama3_json": "llama3_json",
    "mistral": "mistral",
}


def choose_tool_parser(template_source: str | None, flag: str | None) -> str | None:
    """The name of the parser for tool calls; None where the template knows of no tools.

    Raises: ValueError if the flag names no parser.
    """
    if flag is not None:
        return _look_up(flag, _TOOLS, "--tool-call-parser")
    source = template_source or ""
    if mistral.MARKER in source:
        return "mistral"
    if hermes.BEGIN in source:
        return "hermes"
    if llama3.PYTHON_TAG in source or '{"name": ' in source and '"parameters": ' in source:
        return "llama3_json"
    return None


def choose_reasoning_parser(template_source: str | None, flag: str | None) -> str | None:
    """The name of the parser for reasoning; None where the template knows of none.

    Raises: ValueError if the flag names no parser.
    """
    if flag is not None:
        return _look_up(flag, _REASONING, "--reasoning-parser")
    source = template_source or ""
    if reasoning.END not in source:
        return None
    return "deepseek_r1" if _DEEPSEEK in source else "think"


def list_markers(tool_parser: str | None, reasoning_parser: str | None) -> frozenset[str]:
    """The special tokens whose text the parsers must see: they may not be skipped."""
    tags = () if reasoning_parser is None else (reasoning.BEGIN, reasoning.END)
    return frozenset([*FORMATS[tool_parser].special_tokens, *tags])


def _look_up(flag: str, names: Mapping[str, str], option: str) -> str:
    if flag not in names:
        raise ValueError(f"{option} {show(flag)} is not known; known are {', '.join(names)}")
    return names[flag]
