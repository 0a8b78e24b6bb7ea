"""/generate and the two tokenizer endpoints, from the fake engine, which repeats the prompt."""

from typing import Any

import pytest

from api_client import error_of, post, read_chunks
from server_process import ServerProcess

pytestmark = pytest.mark.component
CHAT = [{"role": "user", "content": "hi"}]


def test_generated_texts_begin_with_their_prompts(server: ServerProcess) -> None:
    answer = post(server, "/generate", prompt=["ab", "c"], n=2, max_tokens=3)
    assert answer.json() == {"text": ["ababa", "ababa", "cccc", "cccc"]}


def test_a_stream_of_generate_gives_the_texts_so_far(server: ServerProcess) -> None:
    chunks = read_chunks(post(server, "/generate", prompt="ab", max_tokens=3, stream=True))
    assert [chunk["text"] for chunk in chunks] == [["aba"], ["abab"], ["ababa"]]


def test_generate_takes_sampling_parameters(server: ServerProcess) -> None:
    fields = {"temperature": 0, "stop": "c", "include_stop_str_in_output": True, "seed": 1}
    assert post(server, "/generate", prompt="abc", **fields).json() == {"text": ["abcabc"]}


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/generate", {"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ("/generate", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": CHAT}, "prompt"),
        ("/tokenize", {"messages": []}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"messages": CHAT, "tools": [5]}, "tools.0"),
        ("/detokenize", {"tokens": [-1]}, "tokens.0"),
        ("/detokenize", {"tokens": [999]}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_what_makes_no_sense_is_refused_by_name(
    server: ServerProcess, path: str, fields: dict[str, Any], param: str
) -> None:
    response = post(server, path, **fields)
    assert (response.status_code, error_of(response)["param"]) == (400, param)


def test_an_unfinished_message_is_tokenised_without_an_end(server: ServerProcess) -> None:
    chat = [*CHAT, {"role": "assistant", "content": "ab"}]
    tokens = post(server, "/tokenize", messages=chat, continue_final_message=True).json()["tokens"]
    assert post(server, "/detokenize", tokens=tokens[-3:]).json() == {"prompt": "\nab"}


def test_nothing_has_no_tokens(server: ServerProcess) -> None:
    assert post(server, "/tokenize", prompt="").json()["tokens"] == []
    assert post(server, "/detokenize", tokens=[]).json() == {"prompt": ""}


def test_token_strings_come_only_if_asked_for(server: ServerProcess) -> None:
    assert post(server, "/tokenize", prompt="a").json()["token_strs"] is None
    strings = post(server, "/tokenize", prompt="ab", return_token_strs=True).json()["token_strs"]
    assert strings == ["a", "b"]
