"""Everything that /v1/completions can be asked, from the fake engine, which repeats the prompt.

Its logprobs are made up: the token that comes is second best (-1.0), the next id is best (-0.5).
"""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from api_client import error_of, post, read_chunks, read_events
from server_process import ServerProcess, fake_server

pytestmark = pytest.mark.component
PATH = "/v1/completions"


def complete(server: ServerProcess, **body: Any) -> dict[str, Any]:
    response = post(server, PATH, **body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def choice_of(server: ServerProcess, **body: Any) -> dict[str, Any]:
    choice: dict[str, Any] = complete(server, **body)["choices"][0]
    return choice


def join_chunks(chunks: list[dict[str, Any]], index: int = 0) -> dict[str, Any]:
    """One choice of a stream, put together as the whole answer has it."""
    parts = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
    whole: dict[str, Any] = {"text": "".join(part["text"] for part in parts), "logprobs": None}
    scored = [part["logprobs"] for part in parts if part["logprobs"]]
    if scored:
        whole["logprobs"] = {name: [x for s in scored for x in s[name]] for name in scored[0]}
    assert [part["finish_reason"] for part in parts[:-1]] == [None] * (len(parts) - 1)
    return whole | {name: parts[-1][name] for name in ("finish_reason", "stop_reason")}


def test_logprobs_are_lists_of_one_entry_a_token(server: ServerProcess) -> None:
    logprobs = choice_of(server, prompt="ab", max_tokens=3, logprobs=2)["logprobs"]
    assert logprobs == {
        "tokens": ["a", "b", "a"],
        "token_logprobs": [-1.0, -1.0, -1.0],
        "top_logprobs": [{"a": -1.0, "b": -0.5}, {"b": -1.0, "c": -0.5}, {"a": -1.0, "b": -0.5}],
        "text_offset": [0, 1, 2],
    }


@pytest.mark.parametrize(
    ("num_top", "top"),
    [(0, {"a": -1.0}), (1, {"a": -1.0, "b": -0.5}), (3, {"a": -1.0, "b": -0.5, "c": -1.5})],
)
def test_the_token_that_came_is_among_the_top(
    server: ServerProcess, num_top: int, top: dict[str, float]
) -> None:
    choice = choice_of(server, prompt="a", max_tokens=1, logprobs=num_top)
    assert choice["logprobs"]["top_logprobs"] == [top]


def test_tokens_that_are_no_characters_are_told_by_their_bytes(server: ServerProcess) -> None:
    logprobs = choice_of(server, prompt="a€b", max_tokens=5, logprobs=0)["logprobs"]
    assert logprobs["tokens"] == ["a", "bytes:\\xe2", "bytes:\\x82", "bytes:\\xac", "b"]
    assert logprobs["text_offset"] == [0, 1, 1, 1, 2]


def test_tokens_can_be_told_by_their_ids(server: ServerProcess) -> None:
    fields = {"prompt": [64, 65], "max_tokens": 2, "logprobs": 1}
    logprobs = choice_of(server, return_tokens_as_token_ids=True, **fields)["logprobs"]
    assert logprobs["tokens"] == ["token_id:64", "token_id:65"]
    assert logprobs["top_logprobs"][0].keys() == {"token_id:64", "token_id:65"}


def test_an_echo_stands_before_the_answer_with_its_tokens(server: ServerProcess) -> None:
    answer = complete(server, prompt="héy", max_tokens=2, echo=True, logprobs=1)
    choice = answer["choices"][0]
    assert choice["text"] == "héyh"
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == ["h", "bytes:\\xc3", "bytes:\\xa9", "y", "h", "bytes:\\xc3"]
    assert logprobs["token_logprobs"] == [None, *[-1.0] * 5]
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["text_offset"] == [0, 1, 1, 2, 3, 4]
    assert answer["usage"]["completion_tokens"] == 2


def test_an_echo_without_an_answer_scores_the_prompt(server: ServerProcess) -> None:
    answer = complete(server, prompt="abc", max_tokens=0, echo=True, logprobs=1)
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("abc", "length")
    assert choice["logprobs"]["token_logprobs"] == [None, -1.0, -1.0]
    assert choice["logprobs"]["top_logprobs"][1] == {"b": -1.0, "c": -0.5}
    counts = answer["usage"]
    assert (counts["prompt_tokens"], counts["completion_tokens"]) == (3, 0)


def test_a_prompt_as_long_as_the_context_can_be_scored(server: ServerProcess) -> None:
    choice = choice_of(server, prompt="a" * 256, max_tokens=0, echo=True, logprobs=0)
    assert len(choice["logprobs"]["tokens"]) == 256


def test_a_prompt_of_token_ids_is_echoed_as_text(server: ServerProcess) -> None:
    prompt = post(server, "/tokenize", prompt="a<|im_start|>b").json()["tokens"]
    choice = choice_of(server, prompt=prompt, max_tokens=1, echo=True, logprobs=0)
    assert choice["text"] == "a<|im_start|>ba"
    assert choice["logprobs"]["text_offset"] == [0, 1, 13, 14]


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "ab€😀", "max_tokens": 21, "logprobs": 2},
        {"prompt": "ab", "max_tokens": 5, "echo": True, "logprobs": 1},
        {"prompt": "ab", "max_tokens": 0, "echo": True, "logprobs": 1},
        {"prompt": "abc", "max_tokens": 20, "stop": "ca", "logprobs": 0},
        {"prompt": "abc", "max_tokens": 20, "stop": "ca", "include_stop_str_in_output": True},
        {"prompt": "ab<|im_end|>c", "max_tokens": 9, "logprobs": 0},
        {"prompt": "ab<|im_end|>c", "max_tokens": 9, "ignore_eos": True, "logprobs": 0},
        {"prompt": "😀", "max_tokens": 6},
        {"prompt": "abcdefghij", "max_tokens": 25, "stream_interval": 4, "logprobs": 0},
    ],
    ids=lambda fields: json.dumps(fields)[:60],
)
def test_a_stream_adds_up_to_the_whole_answer(
    server: ServerProcess, fields: dict[str, Any]
) -> None:
    whole = choice_of(server, **fields)
    chunks = read_chunks(post(server, PATH, stream=True, **fields))
    assert join_chunks(chunks) == {name: whole[name] for name in join_chunks(chunks)}
    assert all(chunk["choices"][0]["text"] for chunk in chunks[:-1])


def test_a_streams_chunks_have_so_many_tokens_but_the_first_comes_at_once(
    server: ServerProcess,
) -> None:
    fields = {"prompt": "abcdefghij", "max_tokens": 10, "stream": True, "stream_interval": 4}
    chunks = read_chunks(post(server, PATH, **fields))
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["a", "bcde", "fghi", "j"]


@pytest.mark.parametrize("temperature", [0, 1])
def test_n_answers_are_n_choices_and_the_prompt_counts_once(
    server: ServerProcess, temperature: float
) -> None:
    fields = {"prompt": ["ab", "c"], "n": 3, "max_tokens": 2, "temperature": temperature}
    answer = complete(server, **fields)
    texts = [(choice["index"], choice["text"]) for choice in answer["choices"]]
    assert texts == [(0, "ab"), (1, "ab"), (2, "ab"), (3, "cc"), (4, "cc"), (5, "cc")]
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (3, 12)


def test_n_streams_come_in_one(server: ServerProcess) -> None:
    fields = {"prompt": ["ab", "c"], "n": 2, "max_tokens": 4, "logprobs": 0, "echo": True}
    whole = complete(server, **fields)["choices"]
    chunks = read_chunks(post(server, PATH, stream=True, **fields))
    for index in range(4):
        joined = join_chunks(chunks, index)
        assert joined == {name: whole[index][name] for name in joined}


@pytest.mark.parametrize(
    ("fields", "ending"),
    [
        ({"stop": ["de", "f"]}, ("abc", "stop", "de")),
        ({"stop": ["de"], "include_stop_str_in_output": True}, ("abcde", "stop", "de")),
        ({"stop_token_ids": [67]}, ("abc", "stop", 67)),
        ({"stop_token_ids": [67], "include_stop_str_in_output": True}, ("abcd", "stop", 67)),
        ({"stop": "b", "min_tokens": 4}, ("abcdefa", "stop", "b")),
        ({"stop_token_ids": [65], "min_tokens": 4}, ("abcdefa", "stop", 65)),
        ({"max_tokens": 2}, ("ab", "length", None)),
    ],
    ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else "",
)
def test_an_answer_says_what_ended_it(
    server: ServerProcess, fields: dict[str, Any], ending: tuple[str, str, Any]
) -> None:
    assert post(server, "/tokenize", prompt="bd").json()["tokens"] == [65, 67]
    choice = choice_of(server, prompt="abcdef", **{"max_tokens": 30} | fields)
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ending


def test_the_models_own_end_gives_no_stop_reason(server: ServerProcess) -> None:
    choice = choice_of(server, prompt="ab<|im_end|>", max_tokens=30)
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("ab", "stop", None)


def test_special_tokens_are_left_out_unless_asked_for(server: ServerProcess) -> None:
    fields = {"prompt": "a<|im_start|>", "max_tokens": 4}
    assert choice_of(server, **fields)["text"] == "aa"
    written = choice_of(server, skip_special_tokens=False, **fields)["text"]
    assert written == "a<|im_start|>a<|im_start|>"


def test_token_ids_come_with_the_answer(server: ServerProcess) -> None:
    fields = {"prompt": "ab", "max_tokens": 3, "return_token_ids": True}
    choice = choice_of(server, **fields)
    chunks = read_chunks(post(server, PATH, stream=True, **fields))
    parts = [chunk["choices"][0] for chunk in chunks]
    assert [choice["prompt_token_ids"]] == [p["prompt_token_ids"] for p in parts[:1]]
    assert choice["token_ids"] == [id_ for part in parts for id_ in part["token_ids"]]
    assert "prompt_token_ids" not in parts[1]


def test_prompt_logprobs_come_by_token_id(server: ServerProcess) -> None:
    choice = choice_of(server, prompt="ab", max_tokens=1, prompt_logprobs=1)
    ids = choice_of(server, prompt="bc", max_tokens=1, return_token_ids=True)["prompt_token_ids"]
    assert choice["prompt_logprobs"] == [
        None,
        {
            str(ids[0]): {"logprob": -1.0, "rank": 2, "decoded_token": "b"},
            str(ids[1]): {"logprob": -0.5, "rank": 1, "decoded_token": "c"},
        },
    ]


@pytest.mark.parametrize(
    ("fields", "echoed"),
    [
        ({"truncate_prompt_tokens": 2}, "de"),
        ({"truncate_prompt_tokens": 2, "truncation_side": "right"}, "ab"),
        ({"truncate_prompt_tokens": -1}, "abcde"),
    ],
    ids=["last", "first", "all-that-fits"],
)
def test_a_prompt_is_cut_where_so_asked(
    server: ServerProcess, fields: dict[str, Any], echoed: str
) -> None:
    choice = choice_of(server, prompt="abcde", max_tokens=1, echo=True, **fields)
    assert choice["text"][:-1] == echoed


def test_a_prompt_too_long_is_cut_to_what_the_model_takes(server: ServerProcess) -> None:
    answer = complete(server, prompt="a" * 999, truncate_prompt_tokens=-1)
    assert answer["usage"]["total_tokens"] == 256


@pytest.mark.parametrize("counts_always", [False, True])
def test_usage_is_the_last_chunk_and_has_no_choices(
    server: ServerProcess, counts_always: bool
) -> None:
    options = {"include_usage": True, "continuous_usage_stats": counts_always}
    fields = {"prompt": "ab", "max_tokens": 3, "stream": True, "stream_options": options}
    *chunks, last = read_chunks(post(server, PATH, **fields))
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens"] == 2
    assert last["usage"]["completion_tokens"] == 3
    assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 1}
    counted = [chunk["usage"]["completion_tokens"] for chunk in chunks if "usage" in chunk]
    assert counted == ([1, 2, 3] if counts_always else [])


def test_the_client_may_name_the_answer(server: ServerProcess) -> None:
    assert complete(server, prompt="a", request_id="mine")["id"] == "cmpl-mine"
    two = [complete(server, prompt="a", request_id="mine")["id"] for _ in range(2)]
    assert two == ["cmpl-mine"] * 2


@pytest.mark.parametrize(
    ("structured", "text"),
    [
        ({"choice": ["zebra", "yak"]}, {"zebra", "yak"}),
        ({"regex": "[0-9]{3}"}, {"000"}),
        ({"json": {"type": "boolean"}}, {"true", "false"}),
        ({"grammar": 'start: "x" "y"'}, {"xy"}),
    ],
    ids=lambda value: json.dumps(value)[:30] if isinstance(value, dict) else "",
)
def test_an_answer_is_held_to_a_form(
    server: ServerProcess, structured: dict[str, Any], text: set[str]
) -> None:
    choice = choice_of(server, prompt="q", max_tokens=50, structured_outputs=structured)
    assert choice["text"] in text
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {"9999": 1}}, "logit_bias"),
        ({"stop_token_ids": [9999]}, "stop_token_ids"),
        ({"allowed_token_ids": [9999]}, "allowed_token_ids"),
        ({"min_tokens": 20}, "min_tokens"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"n": 128, "prompt": ["a"] * 9}, "n"),
        ({"truncate_prompt_tokens": 999}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": 0}, "prompt"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
        ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
         "response_format"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else "",
)  # fmt: skip
def test_what_this_model_cannot_do_is_refused_by_name(
    server: ServerProcess, fields: dict[str, Any], param: str
) -> None:
    response = post(server, PATH, **{"prompt": "a", "max_tokens": 8} | fields)
    assert response.status_code == 400
    assert error_of(response)["param"] == param


@pytest.fixture(scope="module")
def slow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    slow = {"step_seconds": 0.05, "max_model_len": 4096}
    with fake_server(tmp_path_factory.mktemp("slow"), slow) as server:
        server.wait_ready()
        yield server


def test_a_request_ends_when_its_own_time_is_over(slow_server: ServerProcess) -> None:
    response = post(slow_server, PATH, prompt="a", max_tokens=4000, timeout=0.2)
    assert response.status_code == 408
    assert error_of(response)["code"] == "timeout"


def test_the_official_client_raises_what_ended_a_stream(slow_server: ServerProcess) -> None:
    base_url = slow_server.url + "/v1"
    with openai.OpenAI(base_url=base_url, api_key="x", max_retries=0) as client:
        stream = client.completions.create(
            model="fake", prompt="a", max_tokens=4000, stream=True, extra_body={"timeout": 0.5}
        )
        texts = []
        with pytest.raises(openai.APIError, match="seconds") as ended:
            texts.extend(chunk.choices[0].text for chunk in stream)
        assert (ended.value.code, ended.value.type) == ("timeout", "timeout_error")
        assert set(texts) == {"a"}
        assert client.completions.create(model="fake", prompt="a", max_tokens=1).choices
    body = {"prompt": "a", "max_tokens": 4000, "stream": True, "timeout": 0.5}
    *_, last = read_events(post(slow_server, PATH, **body))
    # [DONE] would tell clients that know no error events that they have the whole answer.
    assert json.loads(last)["error"]["code"] == "timeout"
