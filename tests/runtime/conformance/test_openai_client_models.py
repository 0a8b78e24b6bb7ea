"""Models, tokens and the server's own pages, as clients of OpenAI and vLLM ask for them."""

from typing import Any

import httpx
import openai
import pytest

from api_client import error_of

pytestmark = pytest.mark.component
USER = {"role": "user", "content": "Say hello in one word."}


def test_the_model_is_listed_and_found_by_name(client: openai.OpenAI) -> None:
    (listed,) = client.models.list().data
    assert (listed.id, listed.object) == ("smollm2", "model") and listed.owned_by
    assert listed.max_model_len == 1024
    assert client.models.retrieve("smollm2").id == "smollm2"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nope")


@pytest.mark.parametrize("path", ["/health", "/ready", "/ping", "/version", "/load", "/metrics"])
def test_the_servers_own_pages_answer(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 200


def test_the_schema_names_every_endpoint_of_the_api(http: httpx.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    assert {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/models",
        "/tokenize",
        "/detokenize",
        "/generate",
    } <= set(paths)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("POST", "/v1/nope", 404),
        ("GET", "/", 404),
        ("GET", "/v1/completions", 405),
        ("DELETE", "/v1/chat/completions", 405),
        ("POST", "/health", 405),
        ("POST", "/v1/models", 405),
    ],
)
def test_a_wrong_path_or_method_is_an_error_in_openais_shape(
    http: httpx.Client, method: str, path: str, status: int
) -> None:
    response = http.request(method, path)
    error_of(response)
    assert response.status_code == status


@pytest.mark.parametrize(
    "text", ["Hello world", "", " ", "é 🚀 日本語", "<|im_start|>", "a\u0000b"]
)
def test_tokens_and_back_give_the_text(http: httpx.Client, text: str) -> None:
    said = http.post("/tokenize", json={"model": "smollm2", "prompt": text}).json()
    assert said["count"] == len(said["tokens"]) and said["max_model_len"] == 1024
    back = http.post("/detokenize", json={"model": "smollm2", "tokens": said["tokens"]}).json()
    assert back == {"prompt": text}


def test_tokens_of_a_chat_are_those_that_a_chat_is_made_of(
    http: httpx.Client, client: openai.OpenAI
) -> None:
    tokens = http.post("/tokenize", json={"messages": [USER]}).json()["tokens"]
    answer: Any = client.chat.completions.create(
        model="smollm2", messages=[USER], max_tokens=1, extra_body={"return_token_ids": True}
    )
    assert answer.prompt_token_ids == tokens
    without = http.post("/tokenize", json={"messages": [USER], "add_generation_prompt": False})
    assert without.json()["tokens"] == tokens[:-4]


def test_tokens_can_be_shown_as_the_vocabulary_has_them(http: httpx.Client) -> None:
    said = http.post("/tokenize", json={"prompt": "Hello é", "return_token_strs": True}).json()
    assert said["token_strs"] == ["Hello", "ĠÃ©"]
    assert http.post("/tokenize", json={"prompt": "Hello"}).json()["token_strs"] is None


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/tokenize", {}, 400),
        ("/tokenize", {"prompt": 5}, 400),
        ("/tokenize", {"prompt": ["a"]}, 400),
        ("/tokenize", {"prompt": None}, 400),
        ("/tokenize", {"messages": []}, 400),
        ("/tokenize", {"messages": [{}]}, 400),
        ("/tokenize", {"prompt": "a", "model": "nope"}, 404),
        (
            "/tokenize",
            {"messages": [USER], "continue_final_message": True, "add_generation_prompt": True},
            400,
        ),
        ("/detokenize", {}, 400),
        ("/detokenize", {"tokens": "x"}, 400),
        ("/detokenize", {"tokens": [-1]}, 400),
        ("/detokenize", {"tokens": [49152]}, 400),
        ("/detokenize", {"tokens": [10**12]}, 400),
        ("/detokenize", {"tokens": [1.5]}, 400),
        ("/detokenize", {"tokens": [1], "model": "nope"}, 404),
    ],
    ids=lambda value: str(value)[:60],
)
def test_tokens_that_mean_nothing_are_refused(
    http: httpx.Client, path: str, body: dict[str, Any], status: int
) -> None:
    response = http.post(path, json=body)
    error_of(response)
    assert response.status_code == status


def test_generate_answers_whole_and_streamed(http: httpx.Client) -> None:
    body = {"prompt": "The capital of France is", "max_tokens": 2, "temperature": 0}
    whole = http.post("/generate", json=body)
    assert whole.status_code == 200 and "Paris" in whole.text
    streamed = http.post("/generate", json=body | {"stream": True})
    assert streamed.status_code == 200 and "Paris" in streamed.text


def test_a_request_id_of_the_client_names_the_answer(http: httpx.Client) -> None:
    body = {"prompt": "a", "max_tokens": 1}
    named = http.post("/v1/completions", json=body, headers={"X-Request-Id": "abc-123"})
    assert "abc-123" in named.json()["id"]


def test_two_requests_of_the_same_id_are_both_answered(http: httpx.Client) -> None:
    body = {"prompt": "The capital of France is", "max_tokens": 2, "temperature": 0}
    texts = []
    for _ in range(2):
        with http.stream(
            "POST",
            "/v1/completions",
            json=body | {"stream": True},
            headers={"X-Request-Id": "same"},
        ) as opened:
            other = http.post("/v1/completions", json=body, headers={"X-Request-Id": "same"})
            texts.append(other.json()["choices"][0]["text"])
            opened.read()
    assert texts == [" Paris."] * 2
