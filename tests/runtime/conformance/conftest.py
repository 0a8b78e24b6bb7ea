"""One `forebay serve` with the real model for the whole folder, and the clients that talk to it."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest

from server_process import ServerProcess, running
from smollm2 import smollm2_path

FLAGS = ["--host", "127.0.0.1", "--port", "0", "--device", "cpu", "--lame-duck-seconds", "0"]
FLAGS += ["--served-model-name", "smollm2", "--max-model-len", "1024", "--max-num-seqs", "8"]
# What logprobs are held against are transformers', which rounds nothing.
FLAGS += ["--dtype", "float32"]
FLAGS += ["--max-num-batched-tokens", "256"]
PATIENCE_SECONDS = 120.0


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The server, ready; it must leave in peace whatever it was asked."""
    command = [sys.executable, "-m", "forebay_runtime.cli", "serve", str(smollm2_path()), *FLAGS]
    log = tmp_path_factory.mktemp("conformance") / "termination-log"
    with running(command, log) as process:
        process.wait_ready()
        yield process
        process.terminate()
        assert process.wait() == 0


@pytest.fixture(scope="session")
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    """OpenAI's client, which shows every failure at once."""
    with openai.OpenAI(
        base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=PATIENCE_SECONDS
    ) as connected:
        yield connected


@pytest.fixture(scope="session")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    """A plain HTTP client, for what OpenAI's cannot say or would hide."""
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as connected:
        yield connected


@pytest.fixture(scope="session")
def good_text(http: httpx.Client) -> Callable[[], str]:
    """Ask what can always be answered, greedily."""

    def ask() -> str:
        body = {"prompt": "The capital of France is", "max_tokens": 1, "temperature": 0}
        answer: dict[str, Any] = http.post("/v1/completions", json=body).raise_for_status().json()
        text: str = answer["choices"][0]["text"]
        return text

    assert ask() == " Paris"
    return ask
