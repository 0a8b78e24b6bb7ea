"""A server that proposes tokens answers, ends and counts as one that does not."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from served_model import FLAGS, SERVE, save_served_model
from server_process import ServerProcess, running

pytestmark = pytest.mark.component

LIMITS = ["--max-model-len", "128", "--max-num-seqs", "4", "--batch-invariant"]
PROMPT = "abcabcabcabcab"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, ...]]:
    """One that proposes nothing, one that asks a draft model, which is the model itself."""
    folder = tmp_path_factory.mktemp("model")
    save_served_model(folder)
    asked = {"model": str(folder), "num_speculative_tokens": 4}
    with ExitStack() as stack:
        started = []
        for flags in ([], ["--speculative-config", json.dumps(asked)]):
            log = tmp_path_factory.mktemp("log") / "termination-log"
            command = [*SERVE, str(folder), *FLAGS, *LIMITS, *flags]
            started.append(stack.enter_context(running(command, log)))
        for server in started:
            server.wait_ready()
        yield tuple(started)


def ask(server: ServerProcess, **fields: Any) -> dict[str, Any]:
    body = {"model": "m", "prompt": PROMPT, "max_tokens": 40, "temperature": 0} | fields
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    said: dict[str, Any] = answer.json()
    return {"choices": said["choices"], "usage": said["usage"]}


def counted(server: ServerProcess) -> dict[str, float]:
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name.partition("{")[0]: float(value) for name, _, value in pairs}


def test_answers_ends_and_usage_are_the_same(servers: tuple[ServerProcess, ...]) -> None:
    plain, proposing = servers
    text = ask(plain, ignore_eos=True)["choices"][0]["text"]
    # A stop string that ends somewhere in the middle of what a step gives.
    stop = text[9:11]
    for fields in (
        {"ignore_eos": True},
        {},
        {"stop": stop},
        {"max_tokens": 7, "ignore_eos": True},
        {"temperature": 1, "seed": 4},
        {"logprobs": 2},
        {"temperature": 1, "seed": 5, "n": 3},
    ):
        assert ask(proposing, **fields) == ask(plain, **fields)
    counts = [counted(server) for server in servers]
    name = "vllm:generation_tokens_total"
    assert counts[0][name] == counts[1][name] + 40, "the first question was asked of one only"
    assert counts[1]["vllm:spec_decode_num_accepted_tokens_total"] > 0
    assert "vllm:spec_decode_num_drafts_total" not in counts[0]


def test_the_draft_models_memory_is_told(servers: tuple[ServerProcess, ...]) -> None:
    plain, proposing = (httpx.get(f"{server.url}/load").json() for server in servers)
    assert "draftWeights" not in plain["memoryBytes"]
    told = proposing["memoryBytes"]
    assert told["draftWeights"] == told["weights"]
    assert told["draftKvCache"] == told["kvCache"]
