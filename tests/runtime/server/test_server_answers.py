"""Answers over real HTTP, from the fake engine, through OpenAI's own client and plain ones."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from api_client import post, read_events
from fake_engine import SPECIALS
from server_metrics import read_metrics, wait_for_rest
from server_process import ServerProcess

pytestmark = pytest.mark.component
TEXT = "héllo €😀 "
CHAT = [{"role": "user", "content": "hi there"}]


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_completion_is_whole(client: openai.OpenAI) -> None:
    completion = client.completions.create(model="fake", prompt=TEXT, max_tokens=21, temperature=0)
    assert completion.object == "text_completion"
    assert completion.choices[0].text == (TEXT * 2).encode()[:21].decode()
    assert completion.choices[0].finish_reason == "length"
    assert completion.usage is not None
    assert completion.usage.model_dump(include={"prompt_tokens", "completion_tokens"}) == {
        "prompt_tokens": len(TEXT.encode()),
        "completion_tokens": 21,
    }


def test_a_streamed_completion_is_the_same_text(client: openai.OpenAI) -> None:
    chunks = list(
        client.completions.create(
            model="fake",
            prompt=TEXT,
            max_tokens=45,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    *texts, last = chunks
    assert "".join(chunk.choices[0].text for chunk in texts) == TEXT * 3
    assert [chunk.choices[0].finish_reason for chunk in texts[-2:]] == [None, "length"]
    assert last.choices == []
    assert last.usage is not None and last.usage.completion_tokens == 45


def test_characters_of_several_bytes_come_whole_in_a_stream(server: ServerProcess) -> None:
    events = read_events(post(server, "/v1/completions", prompt="€😀", max_tokens=14, stream=True))
    texts = [json.loads(event)["choices"][0]["text"] for event in events[:-1]]
    assert [text for text in texts if text] == ["€", "😀", "€", "😀"]
    assert events[-1] == "[DONE]"


def test_a_chat_is_rendered_and_ends_at_the_end_of_the_turn(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(model="fake", messages=CHAT)
    assert chat.object == "chat.completion"
    assert chat.choices[0].message.role == "assistant"
    assert chat.choices[0].message.content == "user\nhi there"
    assert chat.choices[0].finish_reason == "stop"


def test_a_streamed_chat_names_the_role_first_and_the_reason_last(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="fake", messages=CHAT, stream=True))
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "user\nhi there"
    assert [c.choices[0].finish_reason for c in chunks[-2:]] == [None, "stop"]


def test_text_parts_are_joined_by_lines(client: openai.OpenAI) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    chat = client.chat.completions.create(
        model="fake",
        messages=[{"role": "user", "content": parts}],
    )
    assert chat.choices[0].message.content == "user\none\ntwo"


def test_an_answer_of_the_client_library_can_be_sent_back(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(model="fake", messages=CHAT)
    messages: Any = [*CHAT, chat.choices[0].message.model_dump(), *CHAT]
    assert client.chat.completions.create(model="fake", messages=messages).choices


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_stop_string_ends_the_answer_and_is_no_part_of_it(
    server: ServerProcess, stream: bool
) -> None:
    fields = {"prompt": "abcdef", "stop": ["fab", "zzz"], "max_tokens": 100, "stream": stream}
    response = post(server, "/v1/completions", **fields)
    if not stream:
        choice = response.json()["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == ("abcde", "stop")
        assert response.json()["usage"]["completion_tokens"] == 8
        return
    choices = [json.loads(event)["choices"][0] for event in read_events(response)[:-1]]
    assert "".join(choice["text"] for choice in choices) == "abcde"
    assert choices[-1]["finish_reason"] == "stop"


def test_ignore_eos_goes_on_to_max_tokens(server: ServerProcess) -> None:
    response = post(server, "/v1/completions", prompt="ab<|im_end|>", ignore_eos=True, max_tokens=7)
    choice = response.json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("ababa", "length")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_each_of_several_prompts_gets_a_choice(server: ServerProcess, stream: bool) -> None:
    response = post(
        server, "/v1/completions", prompt=["xy", "b", "cd"], max_tokens=5, stream=stream
    )
    if stream:
        texts = dict.fromkeys(range(3), "")
        for event in read_events(response)[:-1]:
            choice = json.loads(event)["choices"][0]
            texts[choice["index"]] += choice["text"]
        assert texts == {0: "xyxyx", 1: "bbbbb", 2: "cdcdc"}
    else:
        body = response.json()
        assert [choice["text"] for choice in body["choices"]] == ["xyxyx", "bbbbb", "cdcdc"]
        assert body["usage"] == {
            "prompt_tokens": 5,
            "completion_tokens": 15,
            "total_tokens": 20,
            "prompt_tokens_details": {"cached_tokens": 2},
        }


def test_without_max_tokens_a_completion_has_16_and_a_chat_what_is_left(
    server: ServerProcess,
) -> None:
    completion = post(server, "/v1/completions", prompt="a").json()
    chat = post(server, "/v1/chat/completions", messages=CHAT, ignore_eos=True).json()
    assert completion["usage"]["completion_tokens"] == 16
    assert chat["usage"]["total_tokens"] == 256


def test_the_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").id == "fake"


def test_text_is_tokenised_and_put_together_again(server: ServerProcess) -> None:
    tokens = post(server, "/tokenize", prompt=TEXT + "<|im_end|>").json()
    assert tokens["count"] == len(tokens["tokens"]) == len(TEXT.encode()) + 1
    assert tokens["max_model_len"] == 256
    back = post(server, "/detokenize", tokens=tokens["tokens"]).json()
    assert back == {"prompt": TEXT + "<|im_end|>"}


def test_many_tokens_become_text_too(server: ServerProcess) -> None:
    tokens = post(server, "/tokenize", prompt=TEXT).json()["tokens"]
    back = post(server, "/detokenize", tokens=tokens * 1_000)
    assert back.json() == {"prompt": TEXT * 1_000}


def test_a_chat_is_tokenised_as_it_would_be_prompted(server: ServerProcess) -> None:
    tokens = post(server, "/tokenize", messages=CHAT, return_token_strs=True).json()
    chat = post(server, "/v1/chat/completions", messages=CHAT).json()
    assert tokens["count"] == chat["usage"]["prompt_tokens"]
    assert tokens["token_strs"][0] == SPECIALS[0]


def test_metrics_count_under_the_names_that_vllm_uses(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, timeout=60) as http:
        before = wait_for_rest(http)
        post(server, "/v1/completions", prompt="abc", max_tokens=5)
        post(server, "/v1/completions", prompt="abc", max_tokens=50, stop="ca", stream=True)
        after = read_metrics(http)
    expected = {
        "vllm:prompt_tokens_total": 6,
        "vllm:generation_tokens_total": 9,
        'vllm:request_success_total{finished_reason="length"}': 1,
        'vllm:request_success_total{finished_reason="stop"}': 1,
        "vllm:time_to_first_token_seconds_count": 2,
        "vllm:inter_token_latency_seconds_count": 7,
        "vllm:e2e_request_latency_seconds_count": 2,
    }
    assert {name: after[name] - before[name] for name in expected} == expected
    assert after["forebay:cold_total"] == 0
    assert after['forebay:vram_bytes{kind="planned",term="weights"}'] == 1000
    assert after['forebay:vram_bytes{kind="measured",term="weights"}'] == 1010
