"""Which parsers a model gets: by its template's markers, or by the flag."""

import pytest

from chat_templates import CHATML, GEMMA, LLAMA3, MISTRAL, PHI3, QWEN3
from forebay_runtime.parsing import choose_reasoning_parser, choose_tool_parser, list_markers

DEEPSEEK = "{{ '<｜Assistant｜>' + content.split('</think>')[-1] }}"


@pytest.mark.parametrize(
    ("source", "tools", "reasoning"),
    [
        (None, None, None),
        (CHATML, None, None),
        (QWEN3, "hermes", "think"),
        (LLAMA3, "llama3_json", None),
        (MISTRAL, "mistral", None),
        (GEMMA, None, None),
        (PHI3, None, None),
        (DEEPSEEK, None, "deepseek_r1"),
    ],
    ids=["none", "chatml", "qwen3", "llama3", "mistral", "gemma", "phi3", "deepseek"],
)
def test_a_template_shows_its_parsers(
    source: str | None, tools: str | None, reasoning: str | None
) -> None:
    assert choose_tool_parser(source, None) == tools
    assert choose_reasoning_parser(source, None) == reasoning


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ("hermes", "hermes"),
        ("qwen", "hermes"),
        ("llama3_json", "llama3_json"),
        ("mistral", "mistral"),
    ],
)
def test_the_flag_for_tools_outdoes_the_template(flag: str, name: str) -> None:
    assert choose_tool_parser(MISTRAL, flag) == name


@pytest.mark.parametrize(
    ("flag", "name"),
    [("think", "think"), ("qwen3", "think"), ("deepseek_r1", "deepseek_r1")],
)
def test_the_flag_for_reasoning_outdoes_the_template(flag: str, name: str) -> None:
    assert choose_reasoning_parser(CHATML, flag) == name


def test_an_unknown_flag_is_told_the_known_ones() -> None:
    with pytest.raises(ValueError, match="--tool-call-parser 'x' is not known; known are hermes,"):
        choose_tool_parser(None, "x")
    with pytest.raises(ValueError, match="--reasoning-parser 'x' is not known; known are think,"):
        choose_reasoning_parser(None, "x")


def test_the_markers_are_what_parsers_look_for() -> None:
    assert list_markers(None, None) == frozenset()
    assert list_markers("hermes", None) == {"<tool_call>", "</tool_call>"}
    assert list_markers("mistral", "think") >= {"[TOOL_CALLS]", "[ARGS]", "<think>", "</think>"}
