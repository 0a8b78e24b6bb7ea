"""Answers held to a schema, a regex, a choice or a grammar; and constraints that are refused."""

import json
import re
from typing import Any

import openai
import pytest
from pydantic import BaseModel

pytestmark = pytest.mark.component
ASK: dict[str, Any] = {
    "model": "smollm2",
    "messages": [{"role": "user", "content": "Describe a car in JSON."}],
    "temperature": 0,
    "max_tokens": 60,
}
CAR = {
    "type": "object",
    "properties": {
        "brand": {"type": "string", "maxLength": 10},
        "kind": {"$ref": "#/$defs/Kind"},
        "doors": {"type": "integer", "minimum": 2, "maximum": 5},
    },
    "required": ["brand", "kind", "doors"],
    "additionalProperties": False,
    "$defs": {"Kind": {"enum": ["sedan", "coupe"]}},
}


def schema_format(schema: Any) -> dict[str, Any]:
    """response_format for a schema."""
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}


def check_car(text: str) -> None:
    """A text that the schema allows."""
    car = json.loads(text)
    assert set(car) == {"brand", "kind", "doors"} and len(car["brand"]) <= 10
    assert car["kind"] in ("sedan", "coupe") and 2 <= car["doors"] <= 5


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"response_format": schema_format(CAR)}, id="response_format"),
        pytest.param(
            {"extra_body": {"structured_outputs": {"json": CAR}}}, id="structured_outputs"
        ),
        pytest.param(
            {"extra_body": {"structured_outputs": {"json": json.dumps(CAR)}}}, id="schema as text"
        ),
    ],
)
def test_a_schema_is_kept_at_any_temperature(client: openai.OpenAI, fields: Any) -> None:
    asked = ASK | fields | {"temperature": 1.5, "seed": 3, "max_tokens": 120}
    answer = client.chat.completions.create(**asked).choices[0]
    assert answer.finish_reason == "stop" and answer.message.content is not None
    check_car(answer.message.content)


def test_a_streamed_object_joins_to_the_whole_one(client: openai.OpenAI) -> None:
    asked = ASK | {"response_format": schema_format(CAR)}
    whole = client.chat.completions.create(**asked).choices[0].message.content
    chunks = list(client.chat.completions.create(**asked, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole
    check_car(text)


def test_parse_gives_back_a_pydantic_object(client: openai.OpenAI) -> None:
    class Car(BaseModel):
        doors: int
        is_red: bool

    answer = client.chat.completions.parse(**ASK, response_format=Car)
    assert isinstance(answer.choices[0].message.parsed, Car)


def test_json_object_gives_an_object(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        **ASK, response_format={"type": "json_object"}, stop=["}"], extra_body=KEEP_STOP
    )
    assert (answer.choices[0].message.content or "").lstrip().startswith("{")


KEEP_STOP = {"include_stop_str_in_output": True}


@pytest.mark.parametrize(
    ("constraint", "pattern"),
    [
        pytest.param({"regex": "[0-9]{3}-[a-f]{2}"}, "[0-9]{3}-[a-f]{2}", id="regex"),
        pytest.param(
            {"regex": r"(\d{1,3}\.){3}\d{1,3}"}, r"(\d{1,3}\.){3}\d{1,3}", id="an address"
        ),
        pytest.param({"choice": ["yes", "no"]}, "yes|no", id="choice"),
        pytest.param({"choice": ["日本", "中国"]}, "日本|中国", id="choice of other letters"),
        pytest.param({"choice": ["only"]}, "only", id="one choice"),
        pytest.param({"grammar": 'start: "yes" | "no"'}, "yes|no", id="a Lark grammar"),
        pytest.param({"grammar": 'root ::= "yes" | "no"'}, "yes|no", id="a GBNF grammar"),
        pytest.param({"json": {"type": "integer", "minimum": 10, "maximum": 99}}, "..", id="json"),
        pytest.param({"json": {"const": "abc"}}, '"abc"', id="a constant"),
        pytest.param({"json": {"type": "boolean"}}, "true|false", id="a boolean"),
    ],
)
def test_what_may_be_said_is_said_and_no_more(
    client: openai.OpenAI, constraint: Any, pattern: str
) -> None:
    extra = {"extra_body": {"structured_outputs": constraint}}
    chat = client.chat.completions.create(**(ASK | {"max_tokens": 30}), **extra).choices[0]
    assert re.fullmatch(pattern, chat.message.content or "") and chat.finish_reason == "stop"
    text = client.completions.create(
        model="smollm2", prompt="Say it:", max_tokens=30, temperature=1.5, seed=1, **extra
    ).choices[0]
    assert re.fullmatch(pattern, text.text) and text.finish_reason == "stop"


def test_each_of_n_choices_has_a_constraint_of_its_own(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="smollm2",
        prompt="A number:",
        max_tokens=10,
        temperature=1.5,
        seed=5,
        n=3,
        extra_body={"structured_outputs": {"regex": "[0-9]{4}"}},
    )
    assert all(re.fullmatch("[0-9]{4}", choice.text) for choice in answer.choices)


def test_logprobs_under_a_constraint_are_numbers(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        **ASK,
        logprobs=True,
        top_logprobs=5,
        extra_body={"structured_outputs": {"choice": ["yes", "no"]}},
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content
    assert all(top.logprob >= -9999 for token in logprobs.content for top in token.top_logprobs)


def test_an_answer_cut_off_says_length(client: openai.OpenAI) -> None:
    asked = ASK | {"response_format": schema_format(CAR), "max_tokens": 3}
    assert client.chat.completions.create(**asked).choices[0].finish_reason == "length"


REFUSED = {
    "no constraint": {"structured_outputs": {}},
    "an unknown kind": {"structured_outputs": {"nope": 1}},
    "two kinds": {"structured_outputs": {"regex": "a", "choice": ["b"]}},
    "a text": {"structured_outputs": "x"},
    "a regex that does not parse": {"structured_outputs": {"regex": "[.*"}},
    "a number for a regex": {"structured_outputs": {"regex": 5}},
    "an object for a regex": {"structured_outputs": {"regex": {"1": "Python"}}},
    "no choices": {"structured_outputs": {"choice": []}},
    "a text for choices": {"structured_outputs": {"choice": "x"}},
    "a number among choices": {"structured_outputs": {"choice": [5]}},
    "a grammar without end": {"structured_outputs": {"grammar": 'root ::= "a'}},
    "a grammar that names nothing": {"structured_outputs": {"grammar": "root ::= missing"}},
    "a number for a grammar": {"structured_outputs": {"grammar": 5}},
    "a schema that is no JSON": {"structured_outputs": {"json": "not json"}},
    "an unknown type": {"structured_outputs": {"json": {"type": "hiccup"}}},
    "a number for a schema": {"structured_outputs": {"json": 5}},
    "a text for a property": {
        "structured_outputs": {"json": {"type": "object", "properties": {"foo": "bar"}}}
    },
    "a reference to nothing": {"structured_outputs": {"json": {"$ref": "#/$defs/No"}}},
    "an unknown format": {"response_format": {"type": "sound"}},
    "a format without type": {"response_format": {}},
    "a text for a format": {"response_format": "json"},
    "json_schema without schema": {"response_format": {"type": "json_schema"}},
    "a schema of no name": {
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "integer"}}}
    },
    "a bad schema in a format": {"response_format": schema_format({"type": "nope"})},
    "guided_json": {"guided_json": {"type": "integer"}},
    "guided_regex": {"guided_regex": "[0-9]"},
    "guided_choice": {"guided_choice": ["a"]},
    "guided_grammar": {"guided_grammar": 'root ::= "a"'},
}


@pytest.mark.parametrize("fields", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_constraints_that_mean_nothing_are_refused(
    client: openai.OpenAI, fields: Any, is_streamed: bool
) -> None:
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**ASK, extra_body=fields, stream=is_streamed)
    with pytest.raises(openai.BadRequestError):
        client.completions.create(
            model="smollm2", prompt="a", max_tokens=4, extra_body=fields, stream=is_streamed
        )


@pytest.mark.parametrize(
    "constraint",
    [
        pytest.param({"regex": "(a|b)" * 4000}, id="a regex of 20 kB"),
        pytest.param({"regex": "((((a{1,100}){1,100}){1,100}){1,100}){1,100}"}, id="nested counts"),
        pytest.param(
            {"json": {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}}, id="a loop"
        ),
        pytest.param({"json": {"type": "string", "minLength": 10**9}}, id="a long minimum"),
        pytest.param({"json": {"allOf": [{"type": "string"}, {"type": "integer"}]}}, id="neither"),
        pytest.param({"regex": r"(?=a)b"}, id="a look-ahead"),
        pytest.param({"regex": "[^\\s\\S]"}, id="nothing at all"),
    ],
)
def test_a_monstrous_constraint_is_answered_or_refused_and_nothing_else(
    client: openai.OpenAI, constraint: Any, good_text: Any
) -> None:
    try:
        client.chat.completions.create(
            **(ASK | {"max_tokens": 2}), extra_body={"structured_outputs": constraint}
        )
    except openai.BadRequestError as refusal:
        assert refusal.message
    assert good_text() == " Paris"
