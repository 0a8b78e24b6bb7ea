"""What users of other engines reported, each by name: none of it may be said of this one."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from api_client import read_chunks
from server_metrics import wait_for_rest

pytestmark = pytest.mark.component
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 8}
USER = [{"role": "user", "content": "Say hello in one word."}]


def text_of(http: httpx.Client, **fields: Any) -> str:
    """The text of a completion."""
    response = http.post("/v1/completions", json=GREEDY | fields)
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["text"]
    return text


def test_running_0_waiting_5_health_200_for_minutes(http: httpx.Client) -> None:
    # Three times as many as run at once, long and short, cut and refused ones among them.
    bodies: list[dict[str, Any]] = [
        {"prompt": "hello " * (300 if n % 5 == 0 else 3), "max_tokens": 1 + n % 7}
        for n in range(24)
    ]
    bodies += [{"prompt": "x " * 3000}, {"prompt": []}, {"prompt": "a", "timeout": 0.01}]
    with ThreadPoolExecutor(len(bodies)) as threads:
        statuses = list(
            threads.map(lambda body: http.post("/v1/completions", json=body).status_code, bodies)
        )
    assert statuses[:26] == [200] * 24 + [400] * 2
    load = http.get("/load").json()
    assert (load["running"], load["waiting"]) == (0, 0)
    assert http.get("/health").status_code == 200


@pytest.mark.parametrize("num_tokens", [16, 64, 128])
def test_one_full_prefix_hit_kills_the_engine(http: httpx.Client, num_tokens: int) -> None:
    prompt = [3000 + n for n in range(num_tokens)]
    texts = [text_of(http, prompt=prompt) for _ in range(3)]
    assert texts[0] == texts[1] == texts[2]


def test_prefix_cache_changes_greedy_output_when_a_stop_string_is_set(http: httpx.Client) -> None:
    prompt = "one, two, three, four, five, six, seven, eight, nine, ten, " * 3
    fields = {"prompt": prompt, "max_tokens": 16, "stop": [" 4"]}
    cold = text_of(http, **fields, cache_salt="cold")
    warm = [text_of(http, **fields, cache_salt="warm") for _ in range(3)]
    assert warm == [cold] * 3
    unstopped = text_of(http, prompt=prompt, max_tokens=16)
    assert cold == unstopped.split(" 4")[0] != unstopped


def test_a_seed_is_not_reproducible_in_a_batch(http: httpx.Client) -> None:
    seeded = {"prompt": "Once upon a time", "temperature": 1.0, "seed": 99, "max_tokens": 16}
    alone = text_of(http, **seeded)
    others = [{"prompt": f"{n} and", "temperature": 1.0, "max_tokens": 12 + n} for n in range(7)]
    with ThreadPoolExecutor(8) as threads:
        crowd = threads.map(lambda fields: text_of(http, **fields), others)
        together = text_of(http, **seeded)
        list(crowd)
    assert together == alone


def test_a_request_that_cannot_fit_blocks_those_behind_it(http: httpx.Client) -> None:
    with ThreadPoolExecutor(6) as threads:
        too_long = threads.submit(
            http.post, "/v1/completions", json={"prompt": [5] * 5000, "max_tokens": 1}
        )
        behind = [
            threads.submit(text_of, http, prompt="The capital of France is") for _ in range(5)
        ]
        assert [one.result().startswith(" Paris.") for one in behind] == [True] * 5
        assert too_long.result().status_code == 400


def test_a_long_prompt_stops_the_streams_of_others(http: httpx.Client) -> None:
    body = {"prompt": "1, 2, 3,", "max_tokens": 60, "ignore_eos": True, "stream": True}
    long = {"prompt": [7] * 900, "max_tokens": 1, "cache_salt": "never seen before"}
    with http.stream("POST", "/v1/completions", json=body) as running, ThreadPoolExecutor() as all_:
        lines = running.iter_lines()
        next(lines)
        answer = all_.submit(http.post, "/v1/completions", json=long)
        was_pending = [not answer.done() for line in lines if line.startswith("data: {")]
        assert answer.result().status_code == 200
    # 900 tokens take several steps, each of which gave the stream a token.
    assert was_pending.count(True) >= 2


def test_gauges_are_frozen_after_everything_was_aborted(http: httpx.Client) -> None:
    body = {"prompt": "Once", "max_tokens": 900, "ignore_eos": True, "stream": True}
    for _ in range(3):
        with http.stream("POST", "/v1/completions", json=body) as stream:
            next(stream.iter_lines())
    wait_for_rest(http)


def test_leading_empty_chunks(http: httpx.Client) -> None:
    completion = http.post(
        "/v1/completions", json=GREEDY | {"prompt": "The capital of France is", "stream": True}
    )
    texts = [event["choices"][0]["text"] for event in read_chunks(completion)]
    assert texts[0] and all(texts[:-1])
    chat = http.post("/v1/chat/completions", json=GREEDY | {"messages": USER, "stream": True})
    deltas = [event["choices"][0]["delta"] for event in read_chunks(chat)]
    assert deltas[0]["role"] == "assistant"
    assert all(delta["content"] for delta in deltas[1:-1])


def test_finish_reason_is_missing_in_the_last_chunk(http: httpx.Client) -> None:
    for path, fields in (
        ("/v1/completions", {"prompt": "The capital of France is"}),
        ("/v1/chat/completions", {"messages": USER}),
    ):
        for end in ({}, {"stop": "."}, {"max_tokens": 1}, {"stop_token_ids": [30]}):
            body = GREEDY | fields | end | {"stream": True}
            *events, last = read_chunks(http.post(path, json=body))
            assert last["choices"][0]["finish_reason"] in ("stop", "length")
            assert all(event["choices"][0]["finish_reason"] is None for event in events)


def test_the_usage_chunk_has_another_shape(http: httpx.Client) -> None:
    for path, fields in (
        ("/v1/completions", {"prompt": "The capital of France is"}),
        ("/v1/chat/completions", {"messages": USER}),
    ):
        asked = GREEDY | fields | {"stream": True, "stream_options": {"include_usage": True}}
        *events, last = read_chunks(http.post(path, json=asked))
        assert last["choices"] == []
        usage = last["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert {"id", "object", "created", "model"} <= set(last)
        assert last["id"] == events[0]["id"] and last["object"] == events[0]["object"]
        assert all(event.get("usage") is None for event in events)
        assert events[-1]["choices"][0]["finish_reason"] == "length"


def test_logprobs_true_without_top_logprobs(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="smollm2", messages=USER, logprobs=True, temperature=0, max_tokens=3
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None and len(logprobs.content) == 3
    assert all(token.top_logprobs == [] for token in logprobs.content)


def test_n_greedy_choices_are_refused(http: httpx.Client) -> None:
    response = http.post("/v1/completions", json=GREEDY | {"prompt": "Hi", "n": 2})
    assert len({choice["text"] for choice in response.json()["choices"]}) == 1


def test_a_bad_constraint_in_a_stream_is_an_event_after_status_200(http: httpx.Client) -> None:
    body = {"prompt": "a", "stream": True, "structured_outputs": {"regex": "[.*"}}
    assert http.post("/v1/completions", json=body).status_code == 400


def test_a_bad_grammar_is_an_internal_error(http: httpx.Client) -> None:
    for grammar in ("root ::= missing", "start: missing", '"', "start: /(/", "\\"):
        body = {"prompt": "a", "structured_outputs": {"grammar": grammar}}
        assert http.post("/v1/completions", json=body).status_code == 400


def test_a_structural_tag_that_is_none_ends_the_server(http: httpx.Client) -> None:
    body = {"prompt": "a", "structured_outputs": {"structural_tag": "x"}}
    assert http.post("/v1/completions", json=body).status_code == 400
    assert http.get("/health").status_code == 200
