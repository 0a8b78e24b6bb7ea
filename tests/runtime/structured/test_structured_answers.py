"""Whatever is drawn within a structure is valid: by chance alone, with three kinds of tokenizer."""

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from structure_bench import Workbench
from structure_walk import takes


def obj(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], **more}


PERSON = obj({"name": {"type": "string"}, "age": {"type": "integer"}})
TREE = obj(
    {"v": {"type": "integer"}, "c": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
    additionalProperties=False,
)
SCHEMAS: dict[str, Any] = {
    "an-object": PERSON,
    "as-text": json.dumps(PERSON),
    "closed": obj({"a": {"type": "number"}, "b": {"type": "boolean"}}, additionalProperties=False),
    "all-optional": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 5}},
        "additionalProperties": False,
    },
    "nested": obj({"p": PERSON, "l": {"type": "array", "items": PERSON, "maxItems": 3}}),
    "refers-to-itself": {"$ref": "#/$defs/n", "$defs": {"n": TREE}},
    "definitions-of-draft-7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": {"type": "integer"}},
        "type": "array",
        "items": {"$ref": "#/definitions/a"},
        "minItems": 1,
    },
    "any-of": {
        "anyOf": [
            {"type": "string", "minLength": 2, "maxLength": 4},
            {"type": "integer", "minimum": 10, "maximum": 99},
            {"type": "null"},
        ]
    },
    "one-of-told-apart": {
        "oneOf": [
            obj({"k": {"const": "a"}, "x": {"type": "integer"}}),
            obj({"k": {"const": "b"}, "y": {"type": "string"}}),
        ]
    },
    "all-of": {"allOf": [obj({"a": {"type": "integer"}}), obj({"b": {"type": "string"}})]},
    "const": {"const": {"a": [1, None, "x\né😀"]}},
    "enum-of-all-kinds": {"enum": ["a", 1, 1.5, True, None, {"a": 1}, []]},
    "large-enum": {"enum": [f"value number {index}" for index in range(10_000)]},
    "pattern": {"type": "string", "pattern": r"^[A-Z]{2}-\d{4}$"},
    "date-time": {"type": "string", "format": "date-time"},
    "uuid": {"type": "string", "format": "uuid"},
    "email": {"type": "string", "format": "email"},
    "ipv4": {"type": "string", "format": "ipv4"},
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "integer"}, {"type": "string"}],
        "items": False,
        "minItems": 2,
    },
    "array-of-two-to-four": {
        "type": "array",
        "items": {"type": "number"},
        "minItems": 2,
        "maxItems": 4,
    },
    "integers-in-a-range": {"type": "integer", "minimum": -7, "exclusiveMaximum": 123},
    "numbers-in-a-range": {"type": "number", "exclusiveMinimum": 0.5, "maximum": 2},
    "multiples": {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 100},
    "type-or-null": {"type": ["string", "null"]},
    "a-map": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1},
    "pattern-properties": {
        "type": "object",
        "patternProperties": {"^x_": {"type": "integer"}},
        "additionalProperties": False,
    },
    "names-with-quotes-and-scripts": obj(
        {'na"me\n': {"type": "boolean"}, "ключ": {"enum": ["да", "нет"]}},
        additionalProperties=False,
    ),
    "required-beyond-properties": {"type": "object", "required": ["a", "b"]},
    "fifty-deep": json.loads('{"properties":{"a":' * 20 + "{}" + "}}" * 20),
    "anything": {},
    "true": "true",
    "library-options-are-no-schema": {
        "type": "integer",
        "x-guidance": {"whitespace_pattern": "x+"},
    },
    "words-of-schema-writers": obj(
        {"a": {"type": "integer", "title": "A", "description": "d", "default": 1}},
        title="T",
        discriminator={"propertyName": "a"},
    ),
}
EXPRESSIONS = {
    "alternatives": "(foo|bar)+baz",
    "digits-are-ascii": r"[a-z]{3,5}\d+",
    "anchored": "^ab$",
    "an-address": r"[a-z.]+@[a-z]+\.(com|org)",
    "escapes": r'a/b\\c"d\.\*\[\]\{\}\(\)\x41\u0042',
    "scripts": "é日本😀+",
    "line-breaks": "a\nb\tc",
    "everything-optional": "a?b?",
    "empty": "",
    "whatever-the-case": "(?i)yes|no",
    "lazy": "a+?b",
    "a-date": r"\d{4}-\d{2}-\d{2}",
    "no-quotes": '[^"]{1,10}',
    "looks-like-a-comment": "a#b // c",
    "twenty-kilobytes": "|".join(f"(word{index}[a-f]*)" for index in range(1200)),
}
CHOICES = {
    "two": ["yes", "no"],
    "one-within-another": ["a", "ab", "abc"],
    "scripts": ["да", "нет", "😀", "é"],
    "control-characters": ["a\nb", "\t", "\0\1\x7f\x85", '"q"', "\\back", "\u2028"],
    "only-one": ["only"],
    "an-empty-one": ["", "a"],
    "only-an-empty-one": [""],
    "spaces": [" a", "  "],
    "names-of-special-tokens": ["<|im_end|>", "<|im_start|>x", "</s>"],
    "twice": ["a", "a"],
    "grammar-syntax": ["/a/", '"', "%json", "start: x", "<[1]>"],
    "many": [f"choice {index}" for index in range(5000)],
}
SEEDS = range(4)


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_json_by_schema_is_what_the_schema_says(workbench: Workbench, schema: Any) -> None:
    built = workbench.build("json_schema", schema)
    plain = json.loads(schema) if isinstance(schema, str) else schema
    validator = Draft202012Validator(plain, format_checker=FormatChecker(["uuid", "email", "ipv4"]))

    for seed in SEEDS:
        text = workbench.walker.walk(built.start(), seed, num_free=seed * 12)

        validator.validate(json.loads(text))


def test_a_json_object_is_an_object(workbench: Workbench) -> None:
    built = workbench.build("json_object")

    for seed in range(12):
        text = workbench.walker.walk(built.start(), seed, num_free=seed * 5)

        assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_text_by_expression_is_matched_by_it_whole(workbench: Workbench, expression: str) -> None:
    built = workbench.build("regex", expression)

    for seed in SEEDS:
        text = workbench.walker.walk(built.start(), seed, num_free=seed * 6)

        assert re.fullmatch(expression, text)


@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_a_choice_is_one_of_the_choices(workbench: Workbench, choices: list[str]) -> None:
    built = workbench.build("choice", choices)

    for seed in SEEDS:
        assert workbench.walker.walk(built.start(), seed, num_free=100) in choices


@pytest.mark.parametrize("choices", [CHOICES["two"], CHOICES["one-within-another"]])
def test_each_choice_can_be_made(workbench: Workbench, choices: list[str]) -> None:
    built = workbench.build("choice", choices)

    made = {workbench.walker.walk(built.start(), seed, num_free=100) for seed in range(60)}

    assert made == set(choices)


GRAMMARS = {
    "lark": ('start: "a" b+\nb: "b" | "c"', "a[bc]+"),
    "lark-with-marks": ('?start: item\n?item: "x" | NUM\nNUM: /[0-9]+/', "x|[0-9]+"),
    "lark-with-json": ('start: "<" %json {"type": "boolean"} ">"', "<(true|false)>"),
    "gbnf": ('root ::= "yes" | "no" " " [a-z]{2}\n', "yes|no [a-z]{2}"),
    "gbnf-recursive": ('root ::= "(" root ")" | [0-9]', r"\(*[0-9]\)*"),
    "gbnf-with-comments": ('# one\nroot ::= it-em+ # two\nit-em ::= "a" | "b"', "[ab]+"),
}


@pytest.mark.parametrize(("grammar", "oracle"), GRAMMARS.values(), ids=GRAMMARS)
def test_text_by_grammar_keeps_to_it(workbench: Workbench, grammar: str, oracle: str) -> None:
    built = workbench.build("grammar", grammar)

    for seed in SEEDS:
        assert re.fullmatch(oracle, workbench.walker.walk(built.start(), seed, num_free=seed * 6))


TAKEN: dict[str, tuple[str, Any, str]] = {
    "compact-json": ("json_schema", PERSON, '{"name":"Ann","age":7}'),
    "json-as-models-write-it": ("json_schema", PERSON, '{"name": "Ann", "age": 7}'),
    "indented-json": ("json_schema", PERSON, '{\n    "name": "Ann",\n    "age": 7\n}'),
    "further-properties": ("json_schema", PERSON, '{"name": "", "age": 0, "x": [{}]}'),
    "any-object": ("json_object", "", '{"a": {"b": [1, null, "\\n é 😀"]}}'),
    "a-pattern-within": ("json_schema", {"type": "string", "pattern": "foo"}, '"a foo b"'),
    "any-text": ("regex", r"(.|\n)*", "a\nb 😀 <|im_start|"),
    "words": ("regex", r"\w+ \w+", "naïve Größe"),
}


@pytest.mark.parametrize(("kind", "source", "text"), TAKEN.values(), ids=TAKEN)
def test_what_is_valid_can_be_said(workbench: Workbench, kind: str, source: Any, text: str) -> None:
    built = workbench.build(kind, source)
    token_ids = [workbench.single_bytes[byte] for byte in text.encode()]

    assert takes(built.start(), token_ids, workbench.tokenizer.eos_token_ids)


REFUSED: dict[str, tuple[str, Any, str]] = {
    "endless-blanks": ("json_object", "", "{" + " " * 40 + "}"),
    "endless-lines": ("json_object", "", "{\n\n\n}"),
    "a-list-for-an-object": ("json_object", "", "[]"),
    "text-behind": ("json_object", "", "{} x"),
    "an-open-object": ("json_schema", PERSON, '{"name": "A"'),
    "properties-in-another-order": ("json_schema", PERSON, '{"age": 1, "name": ""}'),
}


@pytest.mark.parametrize(("kind", "source", "text"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_wanted_cannot_be_said(
    bytewise: Workbench, kind: str, source: Any, text: str
) -> None:
    built = bytewise.build(kind, source)
    token_ids = bytewise.tokenizer.encode(text)

    assert not takes(built.start(), token_ids, bytewise.tokenizer.eos_token_ids)
