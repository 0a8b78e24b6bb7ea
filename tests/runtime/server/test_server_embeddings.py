"""/v1/embeddings; the fake engine gives 0.6, 0.8, 0 for the mean and 0, 0, 1 for the last token."""

import base64
import struct
from typing import Any

import openai
import pytest

from api_client import error_of, post
from server_process import ServerProcess

pytestmark = pytest.mark.component
PATH = "/v1/embeddings"


@pytest.mark.parametrize(
    ("given", "num_vectors", "num_tokens"),
    [
        ("abc", 1, 3),
        (["a", "bc"], 2, 3),
        ([64, 65], 1, 2),
        ([[64], [65, 66]], 2, 3),
        ("a" * 256, 1, 256),
    ],
    ids=["text", "texts", "ids", "id-lists", "as-long-as-the-context"],
)
def test_every_input_gets_a_vector(
    server: ServerProcess, given: Any, num_vectors: int, num_tokens: int
) -> None:
    answer = post(server, PATH, input=given).json()
    assert answer["data"] == [
        {"object": "embedding", "index": index, "embedding": [0.6, 0.8, 0.0]}
        for index in range(num_vectors)
    ]
    assert answer["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}


def test_the_last_token_can_stand_for_the_text(server: ServerProcess) -> None:
    answer = post(server, PATH, input="a", pooling="last").json()
    assert answer["data"][0]["embedding"] == [0.0, 0.0, 1.0]


def test_base64_is_of_float32(server: ServerProcess) -> None:
    answer = post(server, PATH, input="a", encoding_format="base64").json()
    data = base64.b64decode(answer["data"][0]["embedding"])
    assert struct.unpack("<3f", data) == pytest.approx((0.6, 0.8, 0.0))


def test_the_official_client_reads_them(server: ServerProcess) -> None:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0) as client:
        answer = client.embeddings.create(model="fake", input=["a", "b"], dimensions=3)
    assert [each.embedding for each in answer.data] == [pytest.approx([0.6, 0.8, 0.0])] * 2


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"dimensions": 2}, "dimensions", None),
        ({"dimensions": 4, "input": "a" * 257}, "dimensions", None),
        ({"input": "a" * 257}, "input", "context_length_exceeded"),
        ({"input": ""}, "input", None),
        ({"input": [9999]}, "input", None),
        ({"input": []}, "input", None),
        ({"encoding_format": "hex"}, "encoding_format", None),
        ({"pooling": "max"}, "pooling", None),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else "",
)
def test_what_cannot_be_embedded_is_refused_by_name(
    server: ServerProcess, fields: dict[str, Any], param: str, code: str | None
) -> None:
    response = post(server, PATH, **{"input": "a"} | fields)
    error = error_of(response)
    assert (response.status_code, error["param"], error["code"]) == (400, param, code)


def test_a_text_too_long_is_cut_where_so_asked(server: ServerProcess) -> None:
    answer = post(server, PATH, input="a" * 99, truncate_prompt_tokens=8).json()
    assert answer["usage"]["prompt_tokens"] == 8
