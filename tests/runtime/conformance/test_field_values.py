"""Each field's values at and beyond its borders: answered or refused, on both endpoints.

What is here is what clients of OpenAI's and vLLM's APIs meet; where the two differ, OpenAI's limits
are kept only where a value beyond them means nothing to this server.
"""

from typing import Any

import httpx
import pytest

from api_client import error_of

pytestmark = pytest.mark.component
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "Hi"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
}

ACCEPTED: dict[str, list[Any]] = {
    "model": ["smollm2", "", None],
    "max_tokens": [1, 1.0, None],
    "temperature": [0, 1, 2, 0.5, None, 1e-10],
    "top_p": [1, 0.5, 1e-9, None],
    "top_k": [0, -1, 1, 10**9, None],
    "min_p": [0, 1, 0.5, None],
    "n": [1, 2],
    "seed": [0, -1, 2**63 - 1, -(2**63), None],
    "stop": ["e", ["e", "x"], [], None, "é", ["日本", "🚀"]],
    "stop_token_ids": [[], [2], [0, 49151], None],
    "presence_penalty": [-2, 0, 2, None],
    "frequency_penalty": [-2, 0, 2, None],
    "repetition_penalty": [1, 0.5, 2, 100, None],
    "logit_bias": [{}, {"100": 100}, {"100": -100}, {"49151": 0.5}, None],
    "min_tokens": [0, 1],
    "ignore_eos": [True, False],
    "skip_special_tokens": [True, False],
    "spaces_between_special_tokens": [True, False],
    "include_stop_str_in_output": [True, False],
    "bad_words": [[], ["Paris"], ["🚀"]],
    "allowed_token_ids": [[100], None],
    "priority": [0, 1, -5],
    "cache_salt": ["x", None],
    "return_token_ids": [True, False, None],
    "return_tokens_as_token_ids": [True, False],
    "truncate_prompt_tokens": [1, -1, None],
    "response_format": [{"type": "text"}, None],
    "structured_outputs": [None],
    "stream": [True, False, None],
    "user": ["somebody", None],
    "metadata": [{"a": "b"}],
    "store": [True],
    "service_tier": ["auto"],
    "best_of": [1, None],
    "use_beam_search": [False],
    "length_penalty": [1],
    "timeout": [30],
    "an_unknown_field": [1, {"a": []}],
}

REFUSED: dict[str, list[Any]] = {
    "max_tokens": [-1, 1.5, 100_000, 2**31, 2**63, 10**30, [], {}, "many"],
    "temperature": [-1, -0.001, 2.1, 100, 1e308, [], {}, "hot"],
    "top_p": [0, -1, 1.1, [], "x"],
    "top_k": [-2, 1.5, [], "x"],
    "min_p": [-0.1, 1.1, [], "x"],
    "n": [0, -1, 1.5, 129, True, "1", [], "x"],
    "seed": [2**63, -(2**63) - 1, 1.5, [], "x"],
    "stop": ["", [""], 5, [5], {}, [None], [["a"]], ["a", "b", "c", "d", "e"]],
    "stop_token_ids": [[-1], [49152], [10**12], "x", [1.5], 2, [None]],
    "presence_penalty": [2.1, -2.1, [], "x"],
    "frequency_penalty": [2.1, -2.1, [], "x"],
    "repetition_penalty": [0, -1, [], "x"],
    "logit_bias": [{"49152": 1}, {"-1": 1}, {"x": 1}, {"1.5": 1}, {"1": "x"}, {"1": None}, [], "x"],
    "min_tokens": [-1, 3, 1.5, [], "x"],
    "ignore_eos": ["x", [], 5],
    "include_stop_str_in_output": ["x", []],
    "bad_words": [[""], "x", [5], [None]],
    "allowed_token_ids": [[], [49152], [-1], "x"],
    "priority": ["x", 1.5, 2**70, []],
    "cache_salt": ["", 5, []],
    "truncate_prompt_tokens": [-2, "x", 1.5],
    "stream": ["x", [], 5],
    "stream_options": [{"include_usage": True}, 5, "x"],
    "user": [5, []],
    "best_of": [2],
}


def cases(table: dict[str, list[Any]]) -> list[Any]:
    """A test for each field and value; chats, which read these fields alike, take one of each."""
    return [
        pytest.param(path, field, value, id=f"{path.split('/')[2]} {field}={value!r:.40}")
        for path in BODIES
        for field, values in table.items()
        for value in (values if path == "/v1/completions" else values[:1])
    ]


@pytest.mark.parametrize(("path", "field", "value"), cases(ACCEPTED))
def test_is_answered(http: httpx.Client, path: str, field: str, value: Any) -> None:
    body = BODIES[path] | {"max_tokens": 1, "temperature": 0.5, field: value}
    if field == "max_tokens" and value is None:
        body["stop"] = [" ", ",", "."]  # an answer without a limit need not be long
    response = http.post(path, json=body)
    assert response.status_code == 200, response.text


@pytest.mark.parametrize(("path", "field", "value"), cases(REFUSED))
def test_is_refused_by_name(http: httpx.Client, path: str, field: str, value: Any) -> None:
    response = http.post(path, json=BODIES[path] | {"max_tokens": 2, field: value})
    error = error_of(response)
    assert response.status_code == 400
    assert error["param"] is not None and error["param"].startswith(field)
    assert field in error["message"]


LONG = "hello " * 2000
CHAT_ONLY: dict[str, list[Any]] = {
    "messages": [
        None, [], "x", [5], [{}], [{"role": 5, "content": "x"}], [{"role": "user", "content": 5}],
        [{"role": "user", "content": {}}], [{"role": "user"}], [{"role": "tool", "content": None}],
        [{"role": "user", "content": ["hi"]}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "user", "content": [{"type": "text", "text": 5}]}],
        [{"role": "user", "content": [{"type": "nope"}]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a/b"}}]}],
        [{"role": "user", "content": LONG}],
    ],
    "top_logprobs": [5, -1, 21, "x"],
    "logprobs": [5, "x", []],
    "tool_choice": ["auto", "required", "x", {}],
    "reasoning_effort": ["x", 5],
    "chat_template_kwargs": ["x", []],
    "response_format": [{"type": "x"}, {}, "x", {"type": "json_schema"}],
}  # fmt: skip
COMPLETION_ONLY: dict[str, list[Any]] = {
    "prompt": [
        None, "", [], [""], [[]], 5, {}, [None], [1.5], [-1], [[-1]], [49152], [10**12], [["a"]],
        ["a", 5], LONG, [504] * 2000,
    ],
    "logprobs": [-1, -2, 21, 1.5, [], 10**6],
    "prompt_logprobs": [-2, 21, "x", 10**6],
    "suffix": ["x", 5],
    "echo": ["x", []],
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        *(pytest.param("/v1/chat/completions", f, v, id=f"chat {f}={v!r:.60}")
          for f, values in CHAT_ONLY.items() for v in values),
        *(pytest.param("/v1/completions", f, v, id=f"completions {f}={v!r:.60}")
          for f, values in COMPLETION_ONLY.items() for v in values),
    ],
)  # fmt: skip
def test_is_refused_before_any_stream(
    http: httpx.Client, path: str, field: str, value: Any
) -> None:
    response = http.post(path, json=BODIES[path] | {"stream": True, field: value})
    error = error_of(response)
    assert response.status_code == 400
    assert error["param"] is not None and error["param"].split(".")[0] in (field, "logprobs")


@pytest.mark.parametrize("field", ["prompt", "messages"])
def test_what_is_asked_has_to_be_there(http: httpx.Client, field: str) -> None:
    path = "/v1/completions" if field == "prompt" else "/v1/chat/completions"
    error = error_of(http.post(path, json={"max_tokens": 2}))
    assert error["param"] == field


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("model", ["nope", "x" * 3000, "smollm2 ", "../smollm2"])
def test_another_model_is_not_found(http: httpx.Client, path: str, model: str) -> None:
    response = http.post(path, json=BODIES[path] | {"model": model})
    error_of(response)
    assert response.status_code == 404
