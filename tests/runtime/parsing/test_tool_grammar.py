"""Forced calls: whatever can be written within the grammar, the parser reads as calls."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from chat_parsing import collect
from fake_engine import VOCAB_SIZE
from forebay_runtime.parsing import (
    ToolChoice,
    Tools,
    build_chat_parser,
    build_tool_grammar,
    delay_past_reasoning,
    parse_tools,
    read_reasoning_tokens,
)
from structure_bench import Workbench
from structure_walk import read_mask, takes

PARSERS = [None, "hermes", "llama3_json", "mistral"]
SCHEMAS: dict[str, dict[str, Any]] = {
    "add": {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"$ref": "#/$defs/small"}},
        "required": ["x"],
        "additionalProperties": False,
        "$defs": {"small": {"enum": [1, 2]}},
    },
    "say-it": {
        "properties": {"text": {"type": "string", "maxLength": 8}},
        "required": ["text"],
        "additionalProperties": False,
    },
    "no_schema": {},
}
SOURCES = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]


def choose(tool_choice: Any) -> Tools:
    return parse_tools(SOURCES, tool_choice)


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def spell_bytes(workbench: Workbench, text: str) -> list[int]:
    return [workbench.single_bytes[byte] for byte in text.encode()]


def read_calls(parser: str | None, tools: Tools, text: str) -> list[tuple[str, str]]:
    told = collect(build_chat_parser(parser, None, tools.functions, tools.choice, ""), text)
    assert told.content == ""
    return told.calls


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("tool_choice", ["required", named("add"), named("say-it")])
def test_whatever_is_drawn_is_calls(
    workbench: Workbench, parser: str | None, tool_choice: Any
) -> None:
    tools = choose(tool_choice)
    spec = build_tool_grammar(tools.functions, tools.choice, parser)
    assert spec is not None
    compiled = workbench.compile(spec)
    for seed in range(12):
        text = workbench.walker.walk(compiled.start(), seed, num_free=120)
        calls = read_calls(parser, tools, text)
        assert calls
        for name, arguments in calls:
            schema = {**SCHEMAS[name], "type": "object"}
            Draft202012Validator(schema).validate(json.loads(arguments))
        if tools.choice.name:
            assert [name for name, _ in calls] == [tools.choice.name]


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        (
            None,
            '[{"name": "add", "parameters": {"x": 1}}, {"name": "no_schema", "parameters": {}}]',
        ),
        (
            "hermes",
            '<tool_call>\n{"name": "add", "arguments": {"x": 1, "y": 2}}\n</tool_call>\n'
            '<tool_call>\n{"name": "no_schema", "arguments": {}}\n</tool_call>',
        ),
        (
            "llama3_json",
            '{"name": "add", "parameters": {"x": 1}}; {"name": "no_schema", "parameters": {}}',
        ),
        (
            "mistral",
            '[TOOL_CALLS][{"name": "add", "arguments": {"x": 1}}, '
            '{"name": "no_schema", "arguments": {"a": ["b"]}}]',
        ),
    ],
    ids=["list", "hermes", "llama3_json", "mistral"],
)
def test_the_form_is_what_models_were_trained_on(
    workbench: Workbench, parser: str | None, text: str
) -> None:
    tools = choose("required")
    ends = workbench.tokenizer.eos_token_ids
    for is_parallel in (True, False):
        spec = build_tool_grammar(tools.functions, tools.choice, parser, is_parallel)
        assert spec is not None
        constraint = workbench.compile(spec).start()
        assert takes(constraint, spell_bytes(workbench, text), ends) == is_parallel
    assert len(read_calls(parser, tools, text)) == 2


@pytest.mark.parametrize("text", ["no", '[{"name": "sub", "parameters": {}}]', "[]", "["])
def test_nothing_else_can_be_written(workbench: Workbench, text: str) -> None:
    tools = choose("required")
    spec = build_tool_grammar(tools.functions, tools.choice, None)
    assert spec is not None
    ends = workbench.tokenizer.eos_token_ids
    assert not takes(workbench.compile(spec).start(), spell_bytes(workbench, text), ends)


@pytest.mark.parametrize("kind", ["auto", "none"])
def test_who_need_not_call_is_free(kind: Any) -> None:
    assert build_tool_grammar(choose("auto").functions, ToolChoice(kind), "hermes") is None


@pytest.mark.parametrize(
    ("tail", "text", "is_taken"),
    [
        ("<think>\n", "Hm {</think>\n\n[CALL]", True),
        ("<think>\n", "Hm [CALL]", False),
        ("<think>\n\n</think>\n\n", "[CALL]", True),
        ("<think>\n\n</think>\n\n", "Hm</think>[CALL]", False),
        ("", "[CALL]", True),
        ("", "Hm</think>[CALL]", False),
    ],
    ids=["thought", "still-thinking", "told-not-to", "thought-though", "at-once", "unopened"],
)
def test_what_is_forced_is_forced_behind_the_reasoning(
    workbench: Workbench, tail: str, text: str, is_taken: bool
) -> None:
    tools = choose(named("no_schema"))
    spec = build_tool_grammar(tools.functions, tools.choice, None)
    assert spec is not None
    ends = workbench.tokenizer.eos_token_ids

    def spell(token_id: int) -> str:
        text = workbench.tokenizer.token_bytes(token_id)
        return text.decode(errors="replace") or workbench.tokenizer.token_text(token_id)

    tokens = read_reasoning_tokens(spell, VOCAB_SIZE, ends)
    constraint = delay_past_reasoning(workbench.compile(spec).start(), "think", tail, tokens)
    text = text.replace("[CALL]", '[{"name": "no_schema", "parameters": {}}]')
    assert takes(constraint, spell_bytes(workbench, text), ends) == is_taken
    assert constraint.is_complete == is_taken


def test_a_model_may_open_its_reasoning_or_answer_at_once() -> None:
    class Nothing:
        is_complete, error = True, None
        accepted: list[int] = []

        def allowed(self) -> bytes:
            return b"\x01"

        def accept(self, token_id: int) -> None:
            self.accepted.append(token_id)

    texts = ["a", "b", "</s>", "<think>", "</think>"]
    tokens = read_reasoning_tokens(texts.__getitem__, len(texts), [2])
    constraint = delay_past_reasoning(Nothing(), "think", "", tokens)
    assert read_mask(constraint.allowed()) == [0, 3]
    constraint.accept(3)
    assert read_mask(constraint.allowed()) == [0, 1, 3, 4] and not constraint.is_complete
    constraint.accept(1)
    constraint.accept(4)
    assert read_mask(constraint.allowed()) == [0] and constraint.is_complete
    constraint.accept(0)
    assert Nothing.accepted == [0]
