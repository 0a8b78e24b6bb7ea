"""tools and tool_choice: read into data, or refused with the field's path."""

from typing import Any

import pytest

from forebay_runtime.parsing import ToolChoice, parse_tools


def tool(name: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


def named(name: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


TOOLS = [tool("a", description="d", parameters={"type": "object"}), tool("b")]


@pytest.mark.parametrize(
    ("tools", "tool_choice", "choice"),
    [
        (None, None, ToolChoice("none")),
        (None, "none", ToolChoice("none")),
        ([], None, ToolChoice("none")),
        ([], "auto", ToolChoice("none")),
        ([], "required", ToolChoice("none")),
        (TOOLS, None, ToolChoice("auto")),
        (TOOLS, "auto", ToolChoice("auto")),
        (TOOLS, "none", ToolChoice("none")),
        (TOOLS, "required", ToolChoice("required")),
        (TOOLS, named("b"), ToolChoice("named", "b")),
        (TOOLS, {"function": {"name": "a"}}, ToolChoice("named", "a")),
    ],
)
def test_the_choice_is_read(tools: Any, tool_choice: Any, choice: ToolChoice) -> None:
    assert parse_tools(tools, tool_choice).choice == choice


def test_functions_are_read() -> None:
    first, second = parse_tools(TOOLS, None).functions
    assert (first.name, first.parameters, first.source) == ("a", {"type": "object"}, TOOLS[0])
    assert (second.name, second.parameters) == ("b", {"type": "object"})


@pytest.mark.parametrize(
    ("tools", "tool_choice", "message"),
    [
        ({}, None, "tools must be a list of functions, not {}"),
        ([1], None, "tools.0 must be an object, not 1"),
        ([{"type": "web"}], None, "tools.0.type must be 'function', not 'web'"),
        ([{"type": "function"}], None, "tools.0.function must be an object with a name, not None"),
        ([tool(None)], None, "tools.0.function.name must be 1 to 64 letters"),
        ([tool("")], None, "tools.0.function.name must be 1 to 64 letters"),
        ([tool("a b")], None, "tools.0.function.name must be 1 to 64 letters"),
        ([tool("a\n")], None, "tools.0.function.name must be 1 to 64 letters"),
        ([tool("é")], None, "tools.0.function.name must be 1 to 64 letters"),
        ([tool("a" * 65)], None, "tools.0.function.name must be 1 to 64 letters"),
        ([tool("a"), tool("b"), tool("a")], None, "tools.2.function.name 'a' occurs twice"),
        ([tool("a", description=1)], None, "tools.0.function.description must be a string, not 1"),
        ([tool("a", parameters=[])], None, "tools.0.function.parameters must be a JSON schema"),
        ([tool("a")] * 1025, None, "tools has 1025 entries; at most 1024 are allowed"),
        (None, "required", "tool_choice is 'required', which needs tools"),
        (None, "auto", "tool_choice is 'auto', which needs tools"),
        (None, named("a"), "which needs tools"),
        (TOOLS, "any", "tool_choice must be 'none', 'auto', 'required' or"),
        (TOOLS, 1, "tool_choice must be 'none', 'auto', 'required' or"),
        (TOOLS, {"type": "function"}, "tool_choice must be 'none', 'auto', 'required' or"),
        (TOOLS, {"type": "x", "function": {"name": "a"}}, "tool_choice must be 'none'"),
        (TOOLS, named(["a"]), "tool_choice must be 'none', 'auto', 'required' or"),
        (TOOLS, named("c"), "tool_choice names the function 'c', which is not in tools: a, b"),
        ([], named("c"), "tool_choice names the function 'c', which is not in tools: none"),
    ],
)
def test_what_cannot_be_called_is_refused(tools: Any, tool_choice: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_tools(tools, tool_choice)
    assert message in str(caught.value)


def test_values_are_shown_at_a_readable_length() -> None:
    with pytest.raises(ValueError) as caught:
        parse_tools([tool("x" * 10_000)], None)
    assert len(str(caught.value)) < 400
