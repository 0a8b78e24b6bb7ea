"""A stream's text is the text: characters come whole and once, stop strings never."""

from typing import Any

import httpx
import pytest

from api_client import read_chunks

pytestmark = pytest.mark.component
SENTENCES = {
    "emoji": "🚀👩\u200d👧🇫🇷!",
    "CJK": "日本語와中文",
    "combining marks": "e\u0301o\u0302\u0323 Z\u0351",
    "right to left": "שלום مرحبا",
    "rare letters": "𝔘𐍈ꙮ",
    "all widths": "aé€😀 aé",
    "blanks and breaks": "a\tb\r\n  c\u00a0d\u2028e\u200bf",
    "code": "f(x)\n    # ✓\n",
}
FEW = ("emoji", "CJK", "combining marks")
"""Those whose characters share the most tokens."""


def constrained(text: str, **fields: Any) -> dict[str, Any]:
    """A request that can only be answered by a text, whatever the model thinks of it."""
    return {
        "prompt": "Repeat:",
        "max_tokens": 200,
        "temperature": 1.5,
        "seed": 1,
        "structured_outputs": {"choice": [text]},
    } | fields


def streamed(http: httpx.Client, body: dict[str, Any]) -> list[str]:
    """The texts of a stream's chunks."""
    response = http.post("/v1/completions", json=body | {"stream": True})
    assert response.status_code == 200, response.text
    return [event["choices"][0]["text"] for event in read_chunks(response)]


def whole(http: httpx.Client, body: dict[str, Any]) -> str:
    """The unstreamed text."""
    response = http.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["text"]
    return text


@pytest.mark.parametrize("text", SENTENCES.values(), ids=SENTENCES.keys())
def test_characters_of_many_bytes_come_whole_and_once(http: httpx.Client, text: str) -> None:
    parts = streamed(http, constrained(text))
    assert "".join(parts) == text
    assert not any("\ufffd" in part for part in parts)
    assert whole(http, constrained(text)) == text


@pytest.mark.parametrize("text", [SENTENCES[name] for name in FEW], ids=FEW)
@pytest.mark.parametrize("is_chat", [False, True], ids=["completion", "chat"])
def test_logprobs_of_a_stream_lose_no_bytes(http: httpx.Client, text: str, is_chat: bool) -> None:
    body = constrained(text, stream=True)
    if is_chat:
        del body["prompt"]
        body |= {"messages": [{"role": "user", "content": "Repeat."}], "logprobs": True}
        events = read_chunks(http.post("/v1/chat/completions", json=body))
        logprobs = [event["choices"][0]["logprobs"] for event in events]
        raw = bytes(
            b for each in logprobs if each for token in each["content"] for b in token["bytes"]
        )
        assert raw.decode().startswith(text)
        deltas = "".join(event["choices"][0]["delta"].get("content") or "" for event in events)
    else:
        events = read_chunks(http.post("/v1/completions", json=body | {"logprobs": 0}))
        offsets = [
            offset
            for event in events
            if event["choices"][0]["logprobs"]
            for offset in event["choices"][0]["logprobs"]["text_offset"]
        ]
        assert offsets == sorted(offsets) and offsets[0] == 0 and offsets[-1] <= len(text)
        deltas = "".join(event["choices"][0]["text"] for event in events)
    assert deltas == text


STOPS = {
    "across tokens": ("one two three", "ne tw", "o"),
    "a part of itself before": ("aaab aab ab", "aab", "a"),
    "almost, then really": ("foo fo foobar", "foob", "foo fo "),
    "of many bytes": ("日本語の文章", "の", "日本語"),
    "half an emoji's neighbours": ("a 🚀🐱 b", "🐱", "a 🚀"),
    "at the very start": ("stop here", "stop", ""),
    "at the very end": ("go to the end", "end", "go to the "),
    "a line break": ("one\ntwo", "\n", "one"),
}


@pytest.mark.parametrize(("text", "stop", "expected"), STOPS.values(), ids=STOPS.keys())
def test_a_stop_string_never_leaks(http: httpx.Client, text: str, stop: str, expected: str) -> None:
    body = constrained(text, stop=stop)
    assert "".join(streamed(http, body)) == whole(http, body) == expected
    kept = constrained(text, stop=stop, include_stop_str_in_output=True)
    end = text.find(stop)
    told = text if end < 0 else text[: end + len(stop)]
    assert "".join(streamed(http, kept)) == whole(http, kept) == told


def test_of_several_stops_the_first_in_the_text_counts(http: httpx.Client) -> None:
    body = constrained("alpha beta gamma", stop=["gamma", "a b", "beta"])
    assert "".join(streamed(http, body)) == whole(http, body) == "alph"


PROMPTS = ["日本の首都は", "🚀", "def fibonacci(n):"]


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize(
    "fields",
    [{"temperature": 0}, {"temperature": 1.3, "seed": 11}],
    ids=["greedy", "sampled"],
)
def test_deltas_add_up_to_the_unstreamed_text(
    http: httpx.Client, prompt: str, fields: dict[str, Any]
) -> None:
    body = {"prompt": prompt, "max_tokens": 12, **fields}
    parts = streamed(http, body)
    assert "".join(parts) == whole(http, body)
    assert all(parts[:-1]), "a chunk without text"


@pytest.mark.parametrize("interval", [3, 100])
def test_coalesced_pushes_change_no_text(http: httpx.Client, interval: int) -> None:
    body = {"prompt": "1, 2, 3,", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    parts = streamed(http, body | {"stream_interval": interval})
    assert "".join(parts) == whole(http, body)
    assert len(parts) <= 12 // min(interval, 12) + 2


def test_special_tokens_are_shown_only_on_request(http: httpx.Client) -> None:
    body = {"prompt": "a", "max_tokens": 3, "allowed_token_ids": [1], "ignore_eos": True}
    assert whole(http, body) == ""
    shown = whole(http, body | {"skip_special_tokens": False})
    assert shown == "<|im_start|>" * 3
    assert "".join(streamed(http, body | {"skip_special_tokens": False})) == shown
