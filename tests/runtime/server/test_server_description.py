"""/openapi.json is true: what it says of answers holds for answers, and of bodies for bodies."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import ConfigDict, TypeAdapter

from api_client import post
from forebay_runtime.server.api import answers
from forebay_runtime.server.api.app import ENDPOINTS
from forebay_runtime.server.api.description import describe
from server_process import ServerProcess, fake_server

pytestmark = pytest.mark.component
CHAT = [{"role": "user", "content": "hi"}]
RICH: dict[str, Any] = {"return_token_ids": True, "prompt_logprobs": 1, "max_tokens": 2}
SCORED = {"prompt": "a", "logprobs": 1, "echo": True} | RICH
SCORED_CHAT = {"messages": CHAT, "logprobs": True} | RICH


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with fake_server(tmp_path_factory.mktemp("server"), {"max_model_len": 64}) as server:
        server.wait_ready()
        yield server


@pytest.mark.parametrize(
    ("path", "body", "shape"),
    [
        ("/v1/completions", SCORED, answers.Completion),
        ("/v1/completions", {"prompt": "a"}, answers.Completion),
        ("/v1/chat/completions", SCORED_CHAT, answers.ChatCompletion),
        ("/v1/chat/completions", {"messages": CHAT}, answers.ChatCompletion),
        ("/v1/embeddings", {"input": "a"}, answers.Embeddings),
        ("/invocations", SCORED_CHAT, answers.ChatCompletion),
        ("/invocations", SCORED, answers.Completion),
        ("/invocations", {"input": "a"}, answers.Embeddings),
        ("/invocations", {"model": "fake"}, answers.ErrorAnswer),
        ("/generate", {"prompt": "a"}, answers.Texts),
        ("/tokenize", {"prompt": "a", "return_token_strs": True}, answers.Tokens),
        ("/detokenize", {"tokens": [64]}, answers.PromptText),
        ("/tokenizer_info", None, answers.TokenizerInfo),
        ("/v1/models", None, answers.ModelList),
        ("/v1/models/fake", None, answers.ModelCard),
        ("/health", None, answers.Health),
        ("/ping", None, answers.Health),
        ("/ping", {}, answers.Health),
        ("/ready", None, answers.Readiness),
        ("/load", None, answers.LoadNumbers),
        ("/version", None, answers.Version),
        ("/v1/completions", {"prompt": ""}, answers.ErrorAnswer),
        ("/v1/models/other", None, answers.ErrorAnswer),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, str | dict) else "",
)  # fmt: skip
def test_answers_have_the_shapes_that_are_described(
    server: ServerProcess, path: str, body: dict[str, Any] | None, shape: type[Any]
) -> None:
    response = httpx.get(server.url + path) if body is None else post(server, path, **body)
    strict = ConfigDict(extra="forbid", strict=True)
    TypeAdapter(list[shape], config=strict).validate_json(b"[%b]" % response.content)  # type: ignore[valid-type]


def test_every_endpoint_is_described_with_its_body_and_its_errors(server: ServerProcess) -> None:
    document = httpx.get(server.url + "/openapi.json").json()
    assert document == json.loads(json.dumps(describe(ENDPOINTS)))
    assert document["openapi"].startswith("3.1")
    completion = document["paths"]["/v1/completions"]["post"]
    assert completion["responses"].keys() >= {"200", "400", "404", "429", "503"}
    body = completion["requestBody"]["content"]["application/json"]["schema"]
    schema = document["components"]["schemas"][body["$ref"].rpartition("/")[2]]
    assert {"prompt", "logprobs", "structured_outputs", "n"} <= schema["properties"].keys()
    assert {"type": "null"} in schema["properties"]["temperature"]["anyOf"]
    assert schema["required"] == ["prompt"]


def test_every_operation_has_a_name_of_its_own() -> None:
    operations = [each for path in describe(ENDPOINTS)["paths"].values() for each in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names) > len(ENDPOINTS)


def test_no_page_of_the_server_loads_scripts(server: ServerProcess) -> None:
    assert httpx.get(server.url + "/docs").status_code == 404
    assert httpx.get(server.url + "/redoc").status_code == 404


@pytest.mark.parametrize("path", ["/health", "/ping", "/ready", "/v1/models", "/metrics"])
def test_head_says_what_get_would(server: ServerProcess, path: str) -> None:
    response = httpx.head(server.url + path)
    assert (response.status_code, response.content) == (200, b"")
