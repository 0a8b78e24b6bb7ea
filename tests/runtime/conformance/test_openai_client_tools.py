"""Tools as OpenAI's client sees them: calls that parse, whole and streamed, and choices refused."""

import json
from typing import Any

import openai
import pytest

pytestmark = pytest.mark.component
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 8},
                "unit": {"enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
CLOCK: dict[str, Any] = {
    "type": "function",
    "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}},
}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
ASK: dict[str, Any] = {
    "model": "smollm2",
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
    "temperature": 0,
    "max_tokens": 120,
    "tools": [WEATHER],
}


def check_weather(arguments: str) -> None:
    """Arguments that the tool's schema allows."""
    said = json.loads(arguments)
    assert set(said) == {"city", "unit"}
    assert isinstance(said["city"], str) and said["unit"] in ("celsius", "fahrenheit")


@pytest.mark.parametrize(
    ("choice", "reasons"),
    [
        pytest.param("required", {"tool_calls"}, id="required"),
        pytest.param(NAMED, {"tool_calls", "stop"}, id="named"),
    ],
)
def test_a_forced_call_keeps_to_the_tools_schema(
    client: openai.OpenAI, choice: Any, reasons: set[str]
) -> None:
    answer = client.chat.completions.create(**ASK, tool_choice=choice)
    (said,) = answer.choices
    assert said.finish_reason in reasons
    assert not said.message.content
    calls = said.message.tool_calls
    assert calls
    assert len({call.id for call in calls}) == len(calls)
    for call in calls:
        assert call.type == "function" and call.function.name == "get_weather"
        check_weather(call.function.arguments)


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_streamed_deltas_join_to_the_same_call(client: openai.OpenAI, choice: Any) -> None:
    whole = client.chat.completions.create(**ASK, tool_choice=choice).choices[0]
    names: dict[int, str] = {}
    ids: dict[int, str] = {}
    arguments: dict[int, str] = {}
    reasons = []
    for chunk in client.chat.completions.create(**ASK, tool_choice=choice, stream=True):
        (said,) = chunk.choices
        assert not said.delta.content
        reasons += [said.finish_reason] if said.finish_reason else []
        for call in said.delta.tool_calls or []:
            if call.id is not None:
                assert call.index not in ids and call.type == "function"
                ids[call.index] = call.id
            assert call.function is not None
            if call.function.name is not None:
                names[call.index] = names.get(call.index, "") + call.function.name
            arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
    assert reasons == [whole.finish_reason]
    assert whole.message.tool_calls is not None
    assert list(names.values()) == [call.function.name for call in whole.message.tool_calls]
    assert list(arguments.values()) == [
        call.function.arguments for call in whole.message.tool_calls
    ]


def test_required_picks_among_several_tools(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        **(ASK | {"tools": [CLOCK, WEATHER]}), tool_choice="required", parallel_tool_calls=False
    )
    calls = answer.choices[0].message.tool_calls
    assert calls is not None and len(calls) == 1
    assert calls[0].function.name in ("get_time", "get_weather")
    assert isinstance(json.loads(calls[0].function.arguments), dict)


def test_a_named_tool_among_several_is_the_one_called(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        **(ASK | {"tools": [CLOCK, WEATHER]}), tool_choice=NAMED
    )
    calls = answer.choices[0].message.tool_calls
    assert calls is not None and {call.function.name for call in calls} == {"get_weather"}


@pytest.mark.parametrize("choice", ["auto", "none", None])
def test_plain_text_stays_content(client: openai.OpenAI, choice: Any) -> None:
    fields = ASK | {"max_tokens": 8}
    answer = client.chat.completions.create(**fields, tool_choice=choice).choices[0]
    assert answer.finish_reason == "length"
    assert answer.message.content and not answer.message.tool_calls
    chunks = list(client.chat.completions.create(**fields, tool_choice=choice, stream=True))
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert streamed == answer.message.content


def test_tools_without_a_choice_are_offered(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**(ASK | {"max_tokens": 2}))
    assert answer.choices[0].message.content


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_a_call_cut_off_by_max_tokens_says_length(client: openai.OpenAI, choice: Any) -> None:
    answer = client.chat.completions.create(**(ASK | {"max_tokens": 1}), tool_choice=choice)
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"tool_choice": {}}, id="an empty choice"),
        pytest.param({"tool_choice": "any"}, id="an unknown word"),
        pytest.param({"tool_choice": 5}, id="a number"),
        pytest.param({"tool_choice": {"type": "function"}}, id="no function"),
        pytest.param({"tool_choice": {"type": "function", "function": {}}}, id="no name"),
        pytest.param(
            {"tool_choice": {"type": "function", "function": {"name": "nope"}}}, id="no such tool"
        ),
        pytest.param({"tools": "x"}, id="tools that are no list"),
        pytest.param({"tools": [{}]}, id="an empty tool"),
        pytest.param({"tools": [5]}, id="a number for a tool"),
        pytest.param({"tools": [{"type": "function"}]}, id="a tool without function"),
        pytest.param({"tools": [{"type": "function", "function": {}}]}, id="a tool without name"),
        pytest.param(
            {"tools": [{"type": "function", "function": {"name": 5}}]}, id="a number for a name"
        ),
        pytest.param(
            {"tools": [{"type": "nope", "function": {"name": "f"}}]}, id="another kind of tool"
        ),
        pytest.param(
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}]},
            id="a text for parameters",
        ),
        pytest.param(
            {
                "tools": [
                    {"type": "function", "function": {"name": "f", "parameters": {"properties": 5}}}
                ],
                "tool_choice": "required",
            },
            id="a schema that is none",
        ),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_tools_that_mean_nothing_are_refused(
    client: openai.OpenAI, fields: Any, is_streamed: bool
) -> None:
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**(ASK | fields), stream=is_streamed)


def test_the_conversation_goes_on_after_a_call(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(**ASK, tool_choice="required").choices[0].message
    assert first.tool_calls
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "18 degrees"}
    answer = client.chat.completions.create(
        **(ASK | {"messages": [*ASK["messages"], first, result], "max_tokens": 4})
    )
    assert answer.choices[0].message.content


def test_a_tool_call_that_the_model_writes_is_parsed(client: openai.OpenAI) -> None:
    # The model is made to write it, by a grammar of one text: what is tested is the reading of it.
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    fields = ASK | {"extra_body": {"structured_outputs": {"choice": [text]}}}
    whole = client.chat.completions.create(**fields, tool_choice="auto").choices[0]
    assert whole.finish_reason == "tool_calls" and not whole.message.content
    (call,) = whole.message.tool_calls or []
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Rome"}
    chunks = list(client.chat.completions.create(**fields, tool_choice="auto", stream=True))
    assert not any(chunk.choices[0].delta.content for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
