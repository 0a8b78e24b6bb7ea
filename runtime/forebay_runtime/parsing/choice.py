"""Which parsers a model's answers need, by a flag or by the markers in its chat template."""

from __future__ import annotations

from collections.abc import Mapping

_REASONING = {"think": "think", "deepseek_r1": "think", "qwen3": "think"}
_TOOLS = {
    "hermes": "hermes",
    "qwen": "hermes",
    "qwen25": "hermes",
    "llama3_json": "llama3_json",
    "llama4_json": "llama3_json",
    "mistral": "mistral",
}


def choose_tool_parser(template_source: str | None, flag: str | None) -> str | None:
    """The name of the parser for tool calls; None where the template knows of no tools.

    Raises: ValueError if the flag names no parser.
    """
    if flag is not None:
        return _look_up(flag, _TOOLS, "--tool-call-parser")
    source = template_source or ""
    if "[TOOL_CALLS]" in source:
        return "mistral"
    if "<tool_call>" in source:
        return "hermes"
    if "<|python_tag|>" in source or '{"name": ' in source and '"parameters": ' in source:
        return "llama3_json"
    return None


def choose_reasoning_parser(template_source: str | None, flag: str | None) -> str | None:
    """The name of the parser for reasoning; None where the template knows of none.

    Raises: ValueError if the flag names no parser.
    """
    if flag is not None:
        return _look_up(flag, _REASONING, "--reasoning-parser")
    return "think" if "</think>" in (template_source or "") else None


def _look_up(flag: str, names: Mapping[str, str], option: str) -> str:
    if flag not in names:
        raise ValueError(f"{option} {flag[:200]!r} is not known; known are {', '.join(names)}")
    return names[flag]
