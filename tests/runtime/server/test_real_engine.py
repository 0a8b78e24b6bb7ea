"""The server with the real engine: a tiny random model, and the real one that `make model` fetches.

The oracle is `transformers`, in float32, greedy.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import torch

from fake_engine import build_byte_tokenizer
from served_model import FLAGS, SERVE, save_served_model
from server_process import ServerProcess, running

pytestmark = pytest.mark.component


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder as Hugging Face has it, and the same model in `transformers`."""
    folder = tmp_path_factory.mktemp("tiny")
    return folder, save_served_model(folder)


@pytest.fixture(scope="module")
def tiny_server(
    tiny_model: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    limits = ["--max-model-len", "128", "--max-num-seqs", "4", "--max-num-batched-tokens", "32"]
    log = tmp_path_factory.mktemp("log") / "termination-log"
    with running([*SERVE, str(tiny_model[0]), *FLAGS, *limits], log) as server:
        server.wait_ready()
        yield server


def connect(server: ServerProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0)


def greedy(model: Any, prompt: list[int], num_tokens: int) -> list[int]:
    with torch.no_grad():
        answer = model.generate(
            torch.tensor([prompt]), max_new_tokens=num_tokens, do_sample=False, pad_token_id=0
        )
    tokens: list[int] = answer[0, len(prompt) :].tolist()
    return tokens


def test_greedy_answers_are_those_of_transformers_however_many_ask_at_once(
    tiny_model: tuple[Path, Any], tiny_server: ServerProcess
) -> None:
    tokenizer = build_byte_tokenizer()
    prompts = [tokenizer.encode("abcdefgh" * n + "x") for n in range(1, 9)]
    expected = []
    for prompt in prompts:
        tokens = greedy(tiny_model[1], prompt, 24)
        data = b"".join(map(tokenizer.token_bytes, tokens))
        expected.append(data.decode(errors="replace").rstrip("\ufffd"))
    texts: dict[int, str] = {}

    def ask(index: int) -> None:
        with connect(tiny_server) as client:
            chunks = client.completions.create(
                model="m",
                prompt=prompts[index],
                max_tokens=24,
                temperature=0,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            texts[index] = "".join(chunk.choices[0].text for chunk in chunks)

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [texts[index].rstrip("\ufffd") for index in range(len(prompts))] == expected


def test_a_seed_gives_the_same_answer_twice(tiny_server: ServerProcess) -> None:
    with connect(tiny_server) as client:
        ask = {"model": "m", "prompt": "abc", "max_tokens": 20, "temperature": 1.0}
        texts = [client.completions.create(**ask, seed=n).choices[0].text for n in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_a_prompts_logprobs_are_those_of_transformers(
    tiny_model: tuple[Path, Any], tiny_server: ServerProcess
) -> None:
    ids = build_byte_tokenizer().encode("scored in chunks of thirty-two tokens")
    with torch.no_grad():
        scores = tiny_model[1](torch.tensor([ids])).logits[0].log_softmax(-1)
    own = [scores[place, token_id].item() for place, token_id in enumerate(ids[1:])]
    with connect(tiny_server) as client:
        answer = client.completions.create(
            model="m", prompt=ids, max_tokens=0, echo=True, logprobs=2
        )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.token_logprobs is not None
    assert logprobs.token_logprobs[0] is None
    assert logprobs.token_logprobs[1:] == pytest.approx(own, abs=1e-4)
    assert logprobs.top_logprobs is not None
    best = [max(top.values()) for top in logprobs.top_logprobs[1:]]
    assert best == pytest.approx(scores[:-1].max(-1).values.tolist(), abs=1e-4)


def test_answers_to_one_seed_differ_among_themselves_and_come_again(
    tiny_server: ServerProcess,
) -> None:
    with connect(tiny_server) as client:
        ask = {"model": "m", "prompt": "abc", "max_tokens": 12, "seed": 5, "n": 3}
        first, second = (client.completions.create(**ask).choices for _ in range(2))
    texts = [choice.text for choice in first]
    assert len(set(texts)) == 3
    assert texts == [choice.text for choice in second]


def test_a_prompt_of_the_longest_length_is_answered(tiny_server: ServerProcess) -> None:
    with connect(tiny_server) as client:
        answer = client.completions.create(model="m", prompt="a" * 127, max_tokens=1)
        assert answer.usage is not None and answer.usage.total_tokens == 128
        with pytest.raises(openai.BadRequestError) as refusal:
            client.completions.create(model="m", prompt="a" * 128)
    assert refusal.value.code == "context_length_exceeded"


def test_nothing_ran_cold(tiny_server: ServerProcess) -> None:
    metrics = tiny_server.get("/metrics").text
    assert 'forebay:cold_total{model_name="m"} 0.0' in metrics
    assert 'forebay:vram_bytes{kind="measured",model_name="m",term="weights"}' in metrics


def test_the_load_says_where_the_model_runs_and_what_it_takes(tiny_server: ServerProcess) -> None:
    said = tiny_server.get("/load").json()
    assert (said["device"], said["gpuUtilization"]) == ("cpu", None)
    memory = said["memoryBytes"]
    assert memory.keys() == {"weights", "kvCache", "activation", "overhead"}
    assert memory["weights"] > 0 and memory["overhead"] > memory["weights"]
