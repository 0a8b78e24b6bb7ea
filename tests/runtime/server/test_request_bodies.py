"""What requests may say: accepted, ignored because harmless, or refused by name."""

import json
from typing import Any

import pytest

from forebay_runtime.server.api.bodies.body import list_fields, parse_body
from forebay_runtime.server.api.bodies.chat import ChatBody
from forebay_runtime.server.api.bodies.completions import CompletionBody
from forebay_runtime.server.api.limits import Limits, check_token_ids
from forebay_runtime.server.errors import BadRequest

HELLO = [{"role": "user", "content": "hello"}]


def parse_completion(**fields: Any) -> CompletionBody:
    return parse_body(CompletionBody, json.dumps({"prompt": "a"} | fields).encode())


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        (["a", [1]], ["a", [1]]),
        ("", [""]),
    ],
    ids=["text", "texts", "tokens", "token-lists", "both", "empty-text"],
)
def test_a_prompt_is_written_in_several_ways(prompt: Any, prompts: list[Any]) -> None:
    assert parse_completion(prompt=prompt).prompt == prompts


@pytest.mark.parametrize(
    ("stop", "stops"), [("x", ["x"]), (["x", "y"], ["x", "y"]), ([], []), (None, [])]
)
def test_stop_is_a_string_or_a_list(stop: Any, stops: list[str]) -> None:
    assert parse_completion(stop=stop).stop == stops


def test_whole_numbers_may_be_written_with_a_point() -> None:
    body = parse_completion(n=2.0, seed=-3.0, top_k=1e3, stop_token_ids=[5.0], prompt=[[7.0], "a"])
    assert (body.n, body.seed, body.top_k, body.stop_token_ids) == (2, -3, 1000, [5])
    assert body.prompt == [[7], "a"]
    assert parse_completion(prompt=[7.0, 8]).prompt == [[7, 8]]
    told = [body.n, body.seed, body.top_k, *body.stop_token_ids, *body.prompt[0]]
    assert {type(number) for number in told} == {int}


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "me", "metadata": {"a": "b"}, "store": True, "service_tier": "auto"},
        {"safety_identifier": "x", "prompt_cache_key": "y", "parallel_tool_calls": True},
        {"stream_options": {}},
        {"n": 1, "best_of": 1, "echo": False, "suffix": "", "logprobs": None},
        {"use_beam_search": False, "length_penalty": 1.0, "thinking_token_budget": -1},
        {"logit_bias": {}, "tools": [], "tool_choice": "none", "unheard_of": None},
        {"temperature": 0, "top_p": 1, "top_k": -1, "seed": -5, "max_tokens": None},
        {"min_characters": 10, "stream": True, "stream_options": {"chunk": 1}},
    ],
    ids=[
        "harmless",
        "harmless-too",
        "no-options",
        "neutral",
        "penalties",
        "nothing",
        "bounds",
        "unknown",
    ],
)
def test_fields_that_change_nothing_are_accepted(fields: dict[str, Any]) -> None:
    assert parse_completion(**fields).prompt == ["a"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"n": 129}, "n"),
        ({"n": "1"}, "n"),
        ({"n": 1.5}, "n"),
        ({"prompt": [1.5]}, "prompt"),
        ({"stop_token_ids": [2.5]}, "stop_token_ids.0"),
        ({"seed": 1e300}, "seed"),
        ({"best_of": 3}, "best_of"),
        ({"logprobs": -2}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": "yes"}, "echo"),
        ({"suffix": "z"}, "suffix"),
        ({"logit_bias": {"five": 1}}, "logit_bias"),
        ({"logit_bias": {"5": "much"}}, "logit_bias"),
        ({"logit_bias": {"5": float("inf")}}, "logit_bias"),
        ({"logit_bias": [5]}, "logit_bias"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": -2.1}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": 1e-300}, "repetition_penalty"),
        ({"min_p": 1.5}, "min_p"),
        ({"bad_words": [""]}, "bad_words"),
        ({"bad_words": "word"}, "bad_words"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"stop_token_ids": ["a"]}, "stop_token_ids.0"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
            "response_format.json_schema.name",
        ),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": "a", "xml": 1}}, "structured_outputs.xml"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"guided_json": {}}, "guided_json"),
        ({"guided_choice": ["a"]}, "guided_choice"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": "0"}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"seed": 2**63}, "seed"),
        ({"timeout": 0}, "timeout"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"cache_salt": "a/b"}, "cache_salt"),
        ({"request_id": "x" * 300}, "request_id"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"user": 5}, "user"),
        ({"stop": "a" * 2**20}, "stop"),
        ({"stop": 5}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": ["a"] * 1025}, "prompt"),
        ({"model": 7}, "model"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else "",
)
def test_a_field_that_cannot_be_honoured_is_refused_by_name(
    fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequest) as refusal:
        parse_completion(**fields)
    assert refusal.value.param == param
    assert param in refusal.value.message


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'"text"', b"null", b'{"prompt":"\xff"}', b'{"prompt":"\\ud800"}'],
    ids=["empty", "cut", "list", "string", "null", "no-utf-8", "half-a-surrogate-pair"],
)
def test_a_body_that_is_no_json_object_is_refused(content: bytes) -> None:
    with pytest.raises(BadRequest, match="body"):
        parse_body(CompletionBody, content)
    with pytest.raises(BadRequest, match="body"):
        list_fields(content)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": ""}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": HELLO, "logprobs": 5}, "logprobs"),
        ({"messages": HELLO, "top_logprobs": 5}, "top_logprobs"),
        ({"messages": HELLO, "tools": []}, "tools"),
        ({"messages": HELLO, "max_tokens": 0}, "max_tokens"),
        (
            {
                "messages": HELLO,
                "continue_final_message": True,
                "add_generation_prompt": True,
            },
            "continue_final_message",
        ),
        ({"messages": HELLO, "max_completion_tokens": 0}, "max_completion_tokens"),
        ({"messages": HELLO, "reasoning_effort": "much"}, "reasoning_effort"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else "",
)
def test_a_chat_that_cannot_be_honoured_is_refused_by_name(
    fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequest) as refusal:
        parse_body(ChatBody, json.dumps(fields).encode())
    assert refusal.value.param == param


@pytest.mark.parametrize("name", ["max_tokens", "top_k", "seed", "n"])
def test_a_number_too_long_to_write_out_is_refused_in_few_words(name: str) -> None:
    body = json.dumps({"prompt": "a", name: int("9" * 4300)})
    with pytest.raises(BadRequest) as refusal:
        parse_body(CompletionBody, body.encode())
    assert refusal.value.param == name
    assert len(refusal.value.message) < 400


def test_a_token_id_too_long_to_write_out_is_refused_in_few_words() -> None:
    with pytest.raises(BadRequest, match="outside the model's vocabulary of 7 tokens") as refusal:
        check_token_ids(
            [int("9" * 4300)], Limits(max_model_len=9, vocab_size=7, embedding_size=3), "prompt"
        )
    assert len(refusal.value.message) < 400


@pytest.mark.parametrize(
    ("field", "allowed"),
    [
        ({"n": 129}, ["n", "129", "less than or equal to 128"]),
        ({"temperature": 7.25}, ["temperature", "7.25", "less than or equal to 2"]),
        ({"stop": ["x", ""]}, ["stop", "['x', '']", "non-empty string"]),
        ({"suffix": "tail"}, ["suffix", "'tail'", "leave it out"]),
        ({"guided_regex": "a+"}, ["guided_regex", 'structured_outputs: {"regex": ...}']),
        ({"logit_bias": {"x": 1}}, ["logit_bias", "'x'", "token id"]),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else "",
)
def test_a_refusal_names_the_field_its_value_and_what_is_allowed(
    field: dict[str, Any], allowed: list[str]
) -> None:
    with pytest.raises(BadRequest) as refusal:
        parse_completion(**field)
    assert all(part in refusal.value.message for part in allowed), refusal.value.message


def test_long_values_are_cut_at_200_characters() -> None:
    with pytest.raises(BadRequest) as refusal:
        parse_completion(temperature="9" * 10_000)
    assert "9" * 90 in refusal.value.message
    assert "9" * 201 not in refusal.value.message
