"""Schemas that require themselves have no value that ends; all others are left alone."""

from typing import Any

import pytest

from forebay_runtime.structured.endless import has_finite_value


def node(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


ITSELF = {"$ref": "#"}
ENDLESS: dict[str, dict[str, Any]] = {
    "requires-itself": node(next=ITSELF),
    "requires-a-list-of-itself": node(next={"type": "array", "items": ITSELF, "minItems": 1}),
    "only-a-reference": ITSELF,
    "two-that-require-each-other": {
        "$ref": "#/$defs/a",
        "$defs": {"a": node(b={"$ref": "#/$defs/b"}), "b": node(a={"$ref": "#/$defs/a"})},
    },
    "each-alternative-requires-itself": {"anyOf": [node(a=ITSELF), node(b=ITSELF)]},
    "one-of-all-requires-itself": {"allOf": [{"type": "object"}, node(a=ITSELF)]},
    "any-further-property-is-itself": {
        "type": "object",
        "required": ["a"],
        "additionalProperties": ITSELF,
    },
}
ENDING: dict[str, dict[str, Any]] = {
    "nothing-said": {},
    "an-optional-self": {"type": "object", "properties": {"next": ITSELF}},
    "self-or-null": node(next={"anyOf": [ITSELF, {"type": "null"}]}),
    "a-list-of-itself": node(next={"type": "array", "items": ITSELF}),
    "an-object-is-not-required": {"properties": {"next": ITSELF}, "required": ["next"]},
    "a-constant": node(next={"const": 1}),
    "a-property-with-a-name-of-schemas": node(allOf={"type": "string"}, const={"type": "null"}),
    "a-reference-elsewhere": node(next={"$ref": "https://example.com/a.json"}),
    "a-reference-through-a-list": {"$ref": "#/anyOf/0", "anyOf": [{}]},
    "deep-references": {
        "$ref": "#/$defs/a0",
        "$defs": {
            **{f"a{index}": node(x={"$ref": f"#/$defs/a{index + 1}"}) for index in range(30)},
            "a30": {"type": "integer"},
        },
    },
}


@pytest.mark.parametrize("schema", ENDLESS.values(), ids=ENDLESS)
def test_a_schema_that_requires_itself_has_no_finite_value(schema: dict[str, Any]) -> None:
    assert not has_finite_value(schema)


@pytest.mark.parametrize("schema", ENDING.values(), ids=ENDING)
def test_any_other_schema_has_one(schema: dict[str, Any]) -> None:
    assert has_finite_value(schema)
