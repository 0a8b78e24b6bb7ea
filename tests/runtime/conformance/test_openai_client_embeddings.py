"""Embeddings as OpenAI's client sees them."""

import base64
import math
import struct
from typing import Any

import httpx
import openai
import pytest

from api_client import error_of

pytestmark = pytest.mark.component
HIDDEN_SIZE = 576


def cosine(left: list[float], right: list[float]) -> float:
    """How alike two embeddings are, 1 for the same."""
    return sum(a * b for a, b in zip(left, right, strict=True))


def embed(client: openai.OpenAI, given: Any, **fields: Any) -> list[list[float]]:
    """The embeddings of what was given."""
    answer = client.embeddings.create(model="smollm2", input=given, **fields)
    assert [one.index for one in answer.data] == list(range(len(answer.data)))
    return [one.embedding for one in answer.data]


@pytest.mark.parametrize(
    ("given", "num_embeddings", "num_tokens"),
    [
        pytest.param("The capital of France is", 1, 5, id="a text"),
        pytest.param(["The capital of France is", "Hello"], 2, 6, id="texts"),
        pytest.param([504, 3575, 282], 1, 3, id="token ids"),
        pytest.param([[504, 3575], [282]], 2, 3, id="lists of token ids"),
    ],
)
def test_each_input_has_an_embedding_and_its_tokens_are_counted(
    client: openai.OpenAI, given: Any, num_embeddings: int, num_tokens: int
) -> None:
    answer = client.embeddings.create(model="smollm2", input=given)
    assert answer.object == "list" and answer.model == "smollm2"
    assert [one.index for one in answer.data] == list(range(num_embeddings))
    assert {len(one.embedding) for one in answer.data} == {HIDDEN_SIZE}
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == num_tokens


def test_an_embedding_has_length_1(client: openai.OpenAI) -> None:
    (vector,) = embed(client, "Hello", encoding_format="float")
    assert math.isclose(math.hypot(*vector), 1.0, abs_tol=1e-3)


def test_a_text_and_its_tokens_have_the_same_embedding(client: openai.OpenAI) -> None:
    by_text, by_ids = (
        embed(client, "The capital of France is"),
        embed(client, [504, 3575, 282, 4649, 314]),
    )
    assert by_text[0] == pytest.approx(by_ids[0], abs=1e-4)


def test_company_does_not_change_an_embedding(client: openai.OpenAI) -> None:
    (alone,) = embed(client, "The weather is fine today.")
    together = embed(client, ["The weather is fine today.", "Dogs bark.", "x " * 300])
    assert together[0] == pytest.approx(alone, abs=1e-4)
    again = embed(client, "The weather is fine today.")
    assert again[0] == pytest.approx(alone, abs=1e-4)


def test_likeness_of_meaning_is_likeness_of_embeddings(client: openai.OpenAI) -> None:
    cat, kitten, law = embed(
        client,
        ["The cat sleeps on the sofa.", "A cat is asleep on a couch.", "Tax law changed in 1986."],
    )
    assert cosine(cat, kitten) > cosine(cat, law)


def test_base64_holds_the_same_numbers_as_the_list(http: httpx.Client) -> None:
    body = {"model": "smollm2", "input": "Hello"}
    as_list, as_text = (
        http.post("/v1/embeddings", json=body | {"encoding_format": form}).json()["data"][0]
        for form in ("float", "base64")
    )
    assert as_list["object"] == as_text["object"] == "embedding"
    raw = base64.b64decode(as_text["embedding"], validate=True)
    numbers = struct.unpack(f"<{HIDDEN_SIZE}f", raw)
    assert as_list["embedding"] == pytest.approx(list(numbers), abs=1e-6)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        pytest.param({"input": ""}, 400, id="an empty text"),
        pytest.param({"input": []}, 400, id="no inputs"),
        pytest.param({"input": [""]}, 400, id="an empty text among inputs"),
        pytest.param({"input": [[]]}, 400, id="no token ids"),
        pytest.param({"input": None}, 400, id="null"),
        pytest.param({"input": 5}, 400, id="a number"),
        pytest.param({"input": [-1]}, 400, id="a token below 0"),
        pytest.param({"input": [49152]}, 400, id="an unknown token"),
        pytest.param({"input": "a", "encoding_format": "x"}, 400, id="an unknown encoding"),
        pytest.param({"input": "a", "dimensions": 0}, 400, id="no dimensions"),
        pytest.param({"input": "a", "dimensions": 100_000}, 400, id="too many dimensions"),
        pytest.param({"input": "hello " * 2000}, 400, id="longer than the context"),
        pytest.param({"input": "a", "model": "nope"}, 404, id="another model"),
        pytest.param({}, 400, id="no input"),
    ],
)
def test_inputs_that_mean_nothing_are_refused(
    http: httpx.Client, fields: dict[str, Any], status: int
) -> None:
    response = http.post("/v1/embeddings", json={"model": "smollm2"} | fields)
    error_of(response)
    assert response.status_code == status
