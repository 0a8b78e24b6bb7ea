"""What requests may say: accepted, ignored because harmless, or refused by name."""

import json
from typing import Any

import pytest

from forebay_runtime.server.errors import BadRequest
from forebay_runtime.server.prompt import Limits, check_token_ids
from forebay_runtime.server.schemas import ChatBody, CompletionBody, parse_body

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


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "me", "metadata": {"a": "b"}, "store": True, "service_tier": "auto"},
        {"safety_identifier": "x", "prompt_cache_key": "y", "parallel_tool_calls": True},
        {"n": 1, "best_of": 1, "echo": False, "suffix": "", "logprobs": None},
        {"presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1.0},
        {"logit_bias": {}, "tools": [], "tool_choice": "none", "unheard_of": None},
        {"temperature": 0, "top_p": 1, "top_k": -1, "seed": -5, "max_tokens": None},
    ],
    ids=["harmless", "harmless-too", "neutral", "neutral-penalties", "nothing", "bounds"],
)
def test_fields_that_change_nothing_are_accepted(fields: dict[str, Any]) -> None:
    assert parse_completion(**fields).prompt == ["a"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"n": True}, "n"),
        ({"best_of": 3}, "best_of"),
        ({"logprobs": 0}, "logprobs"),
        ({"logprobs": 5}, "logprobs"),
        ({"echo": True}, "echo"),
        ({"suffix": "z"}, "suffix"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"min_tokens": 4}, "min_tokens"),
        ({"guided_json": {}}, "guided_json"),
        ({"tempreature": 0}, "tempreature"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"chunk": 1}}, "stream_options.chunk"),
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
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": 5}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": ["a"] * 257}, "prompt"),
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


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": ""}]}, "messages.0.role"),
        ({"messages": HELLO, "logprobs": True}, "logprobs"),
        ({"messages": HELLO, "max_completion_tokens": 0}, "max_completion_tokens"),
        ({"messages": HELLO, "reasoning_effort": "high"}, "reasoning_effort"),
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
    assert len(refusal.value.message) < 200


def test_a_token_id_too_long_to_write_out_is_refused_in_few_words() -> None:
    with pytest.raises(BadRequest, match="outside the model's vocabulary of 7") as refusal:
        check_token_ids([int("9" * 4300)], Limits(max_model_len=9, vocab_size=7), "prompt")
    assert len(refusal.value.message) < 200
