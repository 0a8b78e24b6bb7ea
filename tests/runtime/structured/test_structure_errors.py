"""What cannot be had is refused with a sentence that names what is wrong."""

import json
from typing import Any

import pytest

from forebay_runtime.structured import StructureError
from structure_bench import Workbench

BAD: dict[str, tuple[str, Any, str]] = {
    "no-json": ("json_schema", "{", "The JSON schema is no JSON: "),
    "no-schema": ("json_schema", "[1]", "The JSON schema is no JSON object"),
    "no-text-and-no-schema": ("json_schema", 5, "The JSON schema is no text"),
    "empty-text": ("json_schema", " ", "The JSON schema is empty"),
    "nothing-allowed": ("json_schema", "false", "cannot be met by any text"),
    "unknown-type": ("json_schema", {"type": "whatever"}, "Invalid type: whatever"),
    "type-of-a-wrong-kind": ("json_schema", {"type": 5}, "type must be a string or array"),
    "properties-as-list": ("json_schema", {"properties": []}, "properties must be an object"),
    "negative-length": ("json_schema", {"minLength": -1}, "'minLength', got -1"),
    "lengths-that-exclude": (
        "json_schema",
        {"type": "string", "minLength": 5, "maxLength": 2},
        "minLength (5) is greater than maxLength (2)",
    ),
    "empty-enum": ("json_schema", {"enum": []}, "Unsatisfiable schema"),
    "negation": ("json_schema", {"not": {}}, '["not"]'),
    "conditions": ("json_schema", {"if": {}, "then": {}}, '["if", "then"]'),
    "unique-items": ("json_schema", {"type": "array", "uniqueItems": True}, '["uniqueItems"]'),
    "unknown-format": ("json_schema", {"type": "string", "format": "frob"}, "format: frob"),
    "one-of-that-may-be-both": (
        "json_schema",
        {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        "oneOf",
    ),
    "a-schema-elsewhere": ("json_schema", {"$ref": "https://example.com/a.json"}, "example.com"),
    "a-reference-to-nothing": ("json_schema", {"$ref": "#/$defs/none"}, "none"),
    "a-reference-to-itself": ("json_schema", {"$ref": "#"}, "requires itself"),
    "a-bad-pattern": ("json_schema", {"type": "string", "pattern": "("}, "unclosed group"),
    "not-a-number": ("json_schema", {"const": float("nan")}, "The JSON schema is no JSON"),
    "no-json-value": ("json_schema", {"const": {1, 2}}, "The JSON schema is no JSON"),
    "too-deep": (
        "json_schema",
        json.loads('{"items":' * 400 + "{}" + "}" * 400),
        "recursion limit exceeded",
    ),
    "far-too-deep-as-text": (
        "json_schema",
        '{"items":' * 10**5 + "{}" + "}" * 10**5,
        "nested too deeply",
    ),
    "half-a-character": ("json_schema", {"const": "\ud800"}, "hex escape"),
    "unclosed-group": ("regex", "(a", "unclosed group"),
    "look-ahead": ("regex", "(?=a)b", "look-around"),
    "word-border": ("regex", r"\bfoo\b", "lookarounds not supported"),
    "back-reference": ("regex", r"(a)\1", "backreferences are not supported"),
    "matches-nothing": ("regex", r"[^\s\S]", "cannot be met by any text"),
    "matches-nothing-inside": ("regex", r"a[^\s\S]b", "cannot be met by any text"),
    "no-text": ("regex", 5, "The regular expression is no text"),
    "half-a-character-in-text": ("regex", "\ud800", "holds a lone surrogate"),
    "nested-groups": ("regex", "(" * 5000 + ")" * 5000, "The regular expression cannot be used"),
    "no-choice": ("choice", [], "The list of choices is empty"),
    "choices-as-text": ("choice", "ab", "The choices are no list of texts"),
    "a-choice-of-a-wrong-kind": ("choice", ["a", 1], "The choice '1' is no text"),
    "half-a-character-in-a-choice": ("choice", ["\ud800"], "The list of choices"),
    "empty-grammar": ("grammar", "", "The grammar is empty"),
    "a-rule-that-is-missing": ("grammar", "start: foo", 'unknown name: "foo"'),
    "no-start": ("grammar", 'item: "a"', "start"),
    "no-grammar": ("grammar", "Tell me a joke", "The grammar cannot be used"),
    "an-unknown-special-token": ("grammar", "start: <frob>", "unknown special token"),
    "gbnf-without-root": ("grammar", 'item ::= "a"', "No 'root' rule found"),
    "gbnf-with-an-open-group": ("grammar", 'root ::= ("a"', "The grammar cannot be read as GBNF"),
    "gbnf-too-deep": ("grammar", "root ::= " + "(" * 9000, "The grammar is nested too deeply"),
    "a-grammar-without-an-end": ("grammar", 'start: start "a"', "cannot be met by any text"),
    "too-long": ("regex", "a" * (2**21 + 1), "is longer than 2097152 bytes"),
    "too-long-a-list": ("choice", ["ab" * 999] * 1100, "is longer than 2097152 bytes"),
}


@pytest.mark.parametrize(("kind", "source", "reason"), BAD.values(), ids=BAD)
def test_what_cannot_be_had_is_refused_by_name(
    bytewise: Workbench, kind: str, source: Any, reason: str
) -> None:
    with pytest.raises(StructureError) as caught:
        bytewise.build(kind, source)

    sentence = str(caught.value)
    assert reason in sentence
    assert sentence.startswith("The ")
    assert len(sentence) < 400
    assert "\n" not in sentence
