"""Everything that /v1/chat/completions can be asked; the model says the last message again.

The template gives the engine the last message alone, so that tests choose the answer's every token.
"""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from api_client import error_of, post, read_chunks
from server_process import ServerProcess, fake_server

pytestmark = pytest.mark.component
PATH = "/v1/chat/completions"
PARROT = (
    "{% if tools %}{# <tool_call> #}{% endif %}{# </think> #}"
    "{{ greeting }}{{ messages[-1]['content'] }}"
    "{% if add_generation_prompt %}<|im_end|>{% endif %}"
)
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": [2]}}\n</tool_call>'
BAD_FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": 5}}}
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    engine = {"max_model_len": 512, "template": PARROT}
    with fake_server(tmp_path_factory.mktemp("server"), engine) as server:
        server.wait_ready()
        yield server


def say(text: Any, role: str = "user") -> list[dict[str, Any]]:
    return [{"role": "system", "content": "Repeat."}, {"role": role, "content": text}]


def chat(server: ServerProcess, text: Any, **body: Any) -> dict[str, Any]:
    response = post(server, PATH, **{"messages": say(text)} | body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def stream(server: ServerProcess, text: Any, **body: Any) -> list[dict[str, Any]]:
    body = {"messages": say(text), "stream": True} | body
    return read_chunks(post(server, PATH, **body))


def test_a_stream_opens_with_the_role_and_closes_with_the_reason(server: ServerProcess) -> None:
    chunks = stream(server, "hi")
    heads = [
        {name: chunk[name] for name in ("id", "object", "created", "model")} for chunk in chunks
    ]
    assert heads == [heads[0]] * 4 and heads[0]["object"] == "chat.completion.chunk"
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": ""},
        {"content": "h"},
        {"content": "i"},
        {},
    ]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]


def test_each_chunk_counts_what_was_told_up_to_it(server: ServerProcess) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = stream(server, "hi", stream_options=options)
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [0, 1, 2, 3, 3]


def test_n_answers_stream_side_by_side(server: ServerProcess) -> None:
    chunks = stream(server, "abc", n=3, stream_options={"include_usage": True})
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 12
    for index in range(3):
        own = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(c["delta"].get("content", "") for c in own) == "abc"
        assert own[-1]["finish_reason"] == "stop"


def test_logprobs_without_top_logprobs_are_the_tokens_own(server: ServerProcess) -> None:
    choice = chat(server, "é", logprobs=True)["choices"][0]
    assert choice["logprobs"]["content"] == [
        {"token": "bytes:\\xc3", "logprob": -1.0, "bytes": [0xC3], "top_logprobs": []},
        {"token": "bytes:\\xa9", "logprob": -1.0, "bytes": [0xA9], "top_logprobs": []},
        {
            "token": "<|im_end|>",
            "logprob": -1.0,
            "bytes": list(b"<|im_end|>"),
            "top_logprobs": [],
        },
    ]


def test_top_logprobs_are_the_best_in_falling_order(server: ServerProcess) -> None:
    choice = chat(server, "a", logprobs=True, top_logprobs=3, max_tokens=1)["choices"][0]
    top = choice["logprobs"]["content"][0]["top_logprobs"]
    assert [(entry["token"], entry["logprob"]) for entry in top] == [
        ("b", -0.5),
        ("a", -1.0),
        ("c", -1.5),
    ]


def test_streamed_logprobs_are_those_of_the_whole_answer(server: ServerProcess) -> None:
    fields = {"logprobs": True, "top_logprobs": 1, "n": 2}
    whole = chat(server, "a€b", **fields)["choices"]
    chunks = stream(server, "a€b", **fields)
    for index in range(2):
        own = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        scored = [entry for c in own if c["logprobs"] for entry in c["logprobs"]["content"]]
        assert scored == whole[index]["logprobs"]["content"]


def test_thoughts_are_told_apart_under_both_names(server: ServerProcess) -> None:
    text = "<think>Hm, well.</think>So be it."
    message = chat(server, text)["choices"][0]["message"]
    assert message["reasoning"] == message["reasoning_content"] == "Hm, well."
    assert message["content"] == "So be it."
    deltas = [chunk["choices"][0]["delta"] for chunk in stream(server, text)]
    for name in ("reasoning", "reasoning_content"):
        assert "".join(delta.get(name, "") for delta in deltas) == "Hm, well."
    assert "".join(delta.get("content", "") for delta in deltas) == "So be it."


@pytest.mark.parametrize(
    ("text", "num_thoughts"),
    [("<think>Hm 😀</think>So", 7), ("<think>Hm", 2), ("So", 0)],
    ids=["whole", "cut-off", "none"],
)
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "left-out"])
def test_tokens_of_thoughts_are_counted(
    server: ServerProcess, text: str, num_thoughts: int, is_told: bool
) -> None:
    fields = {"include_reasoning": is_told, "n": 2}
    usage = chat(server, text, **fields)["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": num_thoughts * 2}
    chunks = stream(server, text, stream_options={"include_usage": True}, **fields)
    told = dict(chunks[-1]["usage"], prompt_tokens_details=usage["prompt_tokens_details"])
    assert told == usage


def test_thoughts_can_be_left_out_and_their_tokens_with_them(server: ServerProcess) -> None:
    fields = {"include_reasoning": False, "logprobs": True}
    choice = chat(server, "<think>secret</think>said", **fields)["choices"][0]
    assert choice["message"]["content"] == "said"
    assert choice["message"]["reasoning"] is None and choice["logprobs"] is None
    assert "secret" not in json.dumps(stream(server, "<think>secret</think>said", **fields))


def test_a_call_is_read_from_the_answer(server: ServerProcess) -> None:
    choice = chat(server, CALL, tools=[ADD])["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["type"] == "function" and call["id"]
    assert call["function"]["name"] == "add"
    assert json.loads(call["function"]["arguments"]) == {"a": 1, "b": [2]}


def test_a_call_streams_its_name_first_and_its_arguments_in_pieces(server: ServerProcess) -> None:
    chunks = stream(server, CALL, tools=[ADD])
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert calls[0]["function"]["name"] == "add" and calls[0]["id"]
    assert {call["index"] for call in calls} == {0}
    assert all("id" not in call and "name" not in call["function"] for call in calls[1:])
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert json.loads(arguments) == {"a": 1, "b": [2]}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_one_call_alone_where_several_are_not_wanted(server: ServerProcess) -> None:
    fields = {"tools": [ADD], "parallel_tool_calls": False}
    assert len(chat(server, CALL + CALL, **fields)["choices"][0]["message"]["tool_calls"]) == 1
    assert len(chat(server, CALL + CALL, tools=[ADD])["choices"][0]["message"]["tool_calls"]) == 2


@pytest.mark.parametrize(
    ("choice", "reason"),
    [("required", "tool_calls"), ({"type": "function", "function": {"name": "add"}}, "stop")],
    ids=["required", "named"],
)
def test_a_call_can_be_asked_for(server: ServerProcess, choice: Any, reason: str) -> None:
    properties = {"x": {"type": "boolean"}}
    parameters = {"properties": properties, "required": ["x"], "additionalProperties": False}
    add = {"type": "function", "function": {"name": "add", "parameters": parameters}}
    fields = {"tools": [add], "tool_choice": choice, "parallel_tool_calls": False}
    answer = chat(server, "no call", max_tokens=300, **fields)["choices"][0]
    assert answer["finish_reason"] == reason
    (call,) = answer["message"]["tool_calls"]
    assert call["function"]["name"] == "add"
    assert json.loads(call["function"]["arguments"])["x"] in (True, False)


def test_without_tools_a_call_is_text(server: ServerProcess) -> None:
    assert chat(server, CALL)["choices"][0]["message"]["content"] == CALL
    message = chat(server, CALL, tools=[ADD], tool_choice="none")["choices"][0]["message"]
    assert message["content"] == CALL and "tool_calls" not in message


def test_the_official_client_puts_a_streamed_call_together(server: ServerProcess) -> None:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0) as client:
        with client.chat.completions.stream(
            model="fake", messages=say(CALL), tools=[ADD]
        ) as events:  # type: ignore[arg-type]
            final = events.get_final_completion()
    (call,) = final.choices[0].message.tool_calls or []
    assert json.loads(call.function.arguments) == {"a": 1, "b": [2]}


def test_the_answer_goes_on_with_the_last_message(server: ServerProcess) -> None:
    fields = {"continue_final_message": True, "max_tokens": 4}
    messages = say("abc", "assistant")
    assert chat(server, "", messages=messages, **fields)["choices"][0]["message"] == {
        "role": "assistant",
        "content": "abca",
        "refusal": None,
        "reasoning": None,
        "reasoning_content": None,
    }
    echoed = chat(server, "", messages=messages, echo=True, **fields)["choices"][0]["message"]
    assert echoed["content"] == "abcabca"
    chunks = stream(server, "", messages=messages, echo=True, **fields)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content", "") for delta in deltas) == "abcabca"


def test_variables_reach_the_template(server: ServerProcess) -> None:
    answer = chat(server, "you", chat_template_kwargs={"greeting": "hey "})
    assert answer["choices"][0]["message"]["content"] == "hey you"


def test_the_prompt_can_be_shown(server: ServerProcess) -> None:
    fields = {"return_token_ids": True, "return_prompt_text": True}
    answer = chat(server, "ab", **fields)
    assert answer["prompt_text"] == "ab<|im_end|>"
    assert len(answer["prompt_token_ids"]) == 3
    chunks = stream(server, "ab", **fields)
    assert chunks[0]["prompt_token_ids"] == answer["prompt_token_ids"]
    told = [id_ for chunk in chunks for id_ in chunk["choices"][0]["token_ids"]]
    assert told == answer["choices"][0]["token_ids"]


def test_prompt_logprobs_stand_beside_the_choices(server: ServerProcess) -> None:
    assert chat(server, "ab", prompt_logprobs=0)["prompt_logprobs"][:2] == [
        None,
        {"65": {"logprob": -1.0, "rank": 2, "decoded_token": "b"}},
    ]


@pytest.mark.parametrize("role", ["developer", "tool", "user", "assistant"])
def test_every_role_is_heard(server: ServerProcess, role: str) -> None:
    messages = [{"role": role, "content": [{"type": "text", "text": "a"}]}]
    assert chat(server, "", messages=messages)["choices"][0]["message"]["content"] == "a"


@pytest.mark.parametrize("role", ["user", "system", "developer", "tool"])
@pytest.mark.parametrize("content", [{}, {"content": None}], ids=["absent", "null"])
def test_only_the_assistant_may_say_nothing(
    server: ServerProcess, role: str, content: dict[str, None]
) -> None:
    mute = {"role": role} | content
    response = post(server, PATH, messages=[mute, *say("a")])
    assert (response.status_code, error_of(response)["param"]) == (400, "messages.0.content")
    messages = [mute | {"role": "assistant"}, *say("a")]
    assert chat(server, "", messages=messages)["choices"][0]["message"]["content"] == "a"


def test_a_conversation_with_calls_can_be_sent_back(server: ServerProcess) -> None:
    first = chat(server, CALL, tools=[ADD])["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "3"}
    messages = [*say("add"), first, result]
    answer = chat(server, "", messages=messages, tools=[ADD])
    assert answer["choices"][0]["message"]["content"] == "3"


@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "json_object"},
        {
            "type": "json_schema",
            "json_schema": {"name": "b", "schema": {"type": "boolean"}, "strict": True},
        },
    ],
    ids=["object", "schema"],
)
def test_an_answer_can_be_held_to_json(
    server: ServerProcess, response_format: dict[str, Any]
) -> None:
    answer = chat(server, "{}", response_format=response_format, max_tokens=200)
    json.loads(answer["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools"),
        ({"tools": [ADD], "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": {"function": {"name": "sub"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"chat_template": "{{ 1 }}"}, "chat_template"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"response_format": BAD_FORMAT}, "response_format"),
        ({"suffix": "x"}, "suffix"),
    ],
    ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else "",
)  # fmt: skip
def test_what_this_model_cannot_do_is_refused_by_name(
    server: ServerProcess, fields: dict[str, Any], param: str
) -> None:
    response = post(server, PATH, **{"messages": say("a")} | fields)
    assert response.status_code == 400
    assert error_of(response)["param"] == param
