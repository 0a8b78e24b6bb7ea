"""Story: a person applies the example and streams an answer, and it is the right one."""

from pathlib import Path
from typing import Any

import openai
import pytest
import yaml

from namespace import Namespace
from prompts import GreedyPath, greedy_paths
from served import ServedModel, condition
from smollm2 import smollm2_path
from transformers_oracle import Oracle

EXAMPLE = Path(__file__).parents[1] / "examples/smollm2.yaml"
NUM_PROMPTS, NUM_TOKENS = 3, 32


@pytest.fixture(scope="module")
def served(module_namespace: Namespace) -> ServedModel:
    """The example, applied and ready."""
    module_namespace.apply_file(EXAMPLE)
    served = ServedModel(module_namespace, yaml.safe_load(EXAMPLE.read_text())["metadata"]["name"])
    served.wait_ready()
    return served


@pytest.fixture(scope="module")
def user(served: ServedModel) -> openai.OpenAI:
    """The official client, pointed at the Service."""
    return openai.OpenAI(base_url=served.base_url(), api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def float32_user(served: ServedModel) -> openai.OpenAI:
    """The same client, once the model rounds nothing that it computes with.

    A service is ready while the old pod, which answers as before, leaves; wait until it has left.
    """
    served.patch({"spec": {"engine": {"dtype": "float32"}}})
    served.wait_ready()
    served.wait_pods(1)
    return openai.OpenAI(base_url=served.base_url(), api_key="none", max_retries=0)


def _chat_path() -> GreedyPath:
    return next(path for path in greedy_paths() if path.endpoint == "chat")


def _ask_to_chat(user: openai.OpenAI, *, stream: bool) -> Any:
    (model,) = [listed.id for listed in user.models.list()]
    return user.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": _chat_path().prompt}],
        max_tokens=NUM_TOKENS,
        temperature=0,
        stream=stream,
    )


def test_ready_speaks_of_this_generation(served: ServedModel) -> None:
    service = served.read()

    assert condition(service, "Ready")["status"] == "True"
    assert service["status"]["observedGeneration"] == service["metadata"]["generation"]
    assert service["status"]["url"] == f"http://{served.name}.{served.namespace.name}.svc/v1"
    assert service["status"]["model"]["architecture"] == "LlamaForCausalLM"
    assert service["status"]["readyReplicas"] == service["status"]["replicas"] == 1
    assert not condition(service, "Reconciling")
    assert not condition(service, "Stalled")


def test_a_chat_answer_streams_and_is_the_one_that_comes_whole(user: openai.OpenAI) -> None:
    whole = _ask_to_chat(user, stream=False).choices[0].message.content
    chunks = list(_ask_to_chat(user, stream=True))

    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == whole
    assert len([piece for piece in pieces if piece]) > NUM_TOKENS // 2, "it came in few pieces"


def test_in_float32_a_chat_answer_is_what_transformers_generates(
    float32_user: openai.OpenAI,
) -> None:
    answer = _ask_to_chat(float32_user, stream=False)

    assert answer.choices[0].message.content == _chat_path().text(NUM_TOKENS)


def test_in_float32_a_greedy_completion_is_what_transformers_generates(
    float32_user: openai.OpenAI,
) -> None:
    oracle = Oracle(smollm2_path())
    (model,) = [listed.id for listed in float32_user.models.list()]
    stored = [path for path in greedy_paths() if path.endpoint == "completion"][:NUM_PROMPTS]

    wanted = [oracle.greedy("completion", path.prompt, NUM_TOKENS) for path in stored]
    got = [
        float32_user.completions.create(
            model=model, prompt=path.prompt, max_tokens=NUM_TOKENS, temperature=0
        )
        for path in stored
    ]

    assert [path.pieces for path in wanted] == [path.pieces[:NUM_TOKENS] for path in stored]
    assert [answer.choices[0].text for answer in got] == [path.text(NUM_TOKENS) for path in wanted]
    assert [answer.usage and answer.usage.completion_tokens for answer in got] == [
        NUM_TOKENS
    ] * NUM_PROMPTS
