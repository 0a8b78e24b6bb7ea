"""Tiny models with a step in flight and without: every answer is the same, to the last bit."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from engine_play import load_engine
from forebay_runtime.engine import Engine
from forebay_runtime.request import Output, Request, SamplingParams
from tiny_model import save_tiny

VOCAB_SIZE = 131
BROKEN_TOKEN = 77
"""Whoever computes it gets NaN."""


class OddAfterEven:
    """A constraint that must see each token: an odd one may follow an even one only, and so on."""

    error = None

    def __init__(self, num_tokens: int) -> None:
        self._num_left = num_tokens
        self._is_odd = False

    def allowed(self) -> bytes:
        bits = 0b10101010 if self._is_odd else 0b01010101
        return bytes([bits]) * -(-VOCAB_SIZE // 8)

    def accept(self, token_id: int) -> None:
        assert token_id % 2 == self._is_odd
        self._is_odd = not self._is_odd
        self._num_left -= 1

    @property
    def is_complete(self) -> bool:
        return self._num_left == 0


KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "seeded": {"temperature": 0.9},
    "filtered": {"top_p": 0.8, "top_k": 9, "min_p": 0.01},
    "logprobs": {"temperature": 0, "num_logprobs": 3, "num_prompt_logprobs": 2},
    "penalties": {"temperature": 0, "repetition_penalty": 1.5, "frequency_penalty": 0.3},
    "bad-words": {"temperature": 0, "bad_words": ((5,), (9, 8), (3, 2, 1))},
    "biased": {"temperature": 0, "logit_bias": ((3, 4.0), (9, 4.0)), "min_tokens": 3},
    "stops": {"stop_token_ids": frozenset(range(0, 60, 3)), "min_tokens": 2},
    "scored-only": {"num_prompt_logprobs": 0, "max_tokens": 0},
}


def build_requests(seed: int, number: int) -> list[Request]:
    """One of each kind and more, with structures, embeddings and some that will break."""
    chance = random.Random(seed)
    makers: list[Callable[[str, list[int], dict[str, Any]], Request]] = [
        *(_of_kind(fields) for fields in KINDS.values()),
        lambda name, prompt, fields: Request(
            name, prompt, SamplingParams(**fields), constraint=OddAfterEven(4)
        ),
        lambda name, prompt, fields: Request(
            name, prompt, replace(SamplingParams(**fields), max_tokens=0), pooling="mean"
        ),
        lambda name, prompt, fields: Request(
            name, [*prompt, BROKEN_TOKEN, 1], SamplingParams(**fields)
        ),
    ]
    requests = []
    for index in range(number):
        begin = list(range(40, 57)) if index % 3 else []
        prompt = begin + [chance.randrange(70) for _ in range(chance.choice([1, 5, 30, 50]))]
        fields = {"max_tokens": chance.randrange(1, 30), "seed": index, "ignore_eos": index % 2}
        requests.append(makers[index % len(makers)](str(index), prompt, fields))
    return requests


def _of_kind(kind: dict[str, Any]) -> Callable[[str, list[int], dict[str, Any]], Request]:
    return lambda name, prompt, fields: Request(name, prompt, SamplingParams(**(fields | kind)))


def play(engine: Engine, requests: list[Request], seed: int) -> dict[str, list[Output]]:
    """All outputs; requests come by chance, and every seventh is aborted at its third token."""
    chance = random.Random(seed)
    outputs: dict[str, list[Output]] = {request.request_id: [] for request in requests}
    coming = list(requests)
    while coming or engine.has_work:
        while coming and (not engine.has_work or chance.random() < 0.4):
            engine.add(coming.pop(0))
        for output in engine.step():
            name = output.request_id
            outputs[name].append(output)
            if int(name) % 7 == 0 and sum(len(each.token_ids) for each in outputs[name]) == 3:
                engine.abort(name)
    return outputs


def told(outputs: list[Output]) -> dict[str, Any]:
    """All that a client is told, but when and how much of it was cached."""
    last = outputs[-1]
    assert [output.finish_reason is not None for output in outputs].index(True) == len(outputs) - 1
    return {
        "token_ids": [token_id for output in outputs for token_id in output.token_ids],
        "logprobs": [scores for output in outputs for scores in output.logprobs],
        "prompt_logprobs": [o.prompt_logprobs for o in outputs if o.prompt_logprobs is not None],
        "embedding": last.embedding,
        "ending": (last.finish_reason, last.error, last.stop_token_id),
    }


@pytest.fixture(scope="module", params=["llama", "window"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    window = {"family": "mistral", "sliding_window": 24} if request.param == "window" else {}
    save_tiny(folder, **window)
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][BROKEN_TOKEN] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def load(folder: Path, num_blocks: int, is_async: bool) -> Engine:
    return load_engine(
        folder,
        max_num_seqs=6,
        max_num_batched_tokens=40,
        max_model_len=112,
        block_size=8,
        kv_cache_memory_bytes=num_blocks * 8 * 1_536,
        batch_invariant=True,
        async_scheduling=is_async,
    )


@pytest.mark.parametrize("num_blocks", [100, 15], ids=["roomy", "tight"])
def test_answers_are_the_same_with_a_step_in_flight(folder: Path, num_blocks: int) -> None:
    plain, ahead = (load(folder, num_blocks, is_async) for is_async in (False, True))
    reasons = set()
    for seed in range(3):
        expected = play(plain, build_requests(seed, 36), seed)
        for name, outputs in play(ahead, build_requests(seed, 36), seed).items():
            assert told(outputs) == told(expected[name]), f"seed {seed}, request {name}"
            reasons.add(outputs[-1].finish_reason)
    assert reasons == {"stop", "length", "error", "abort"}
    load_now = ahead.load_now()
    assert load_now.kv_cache_usage == 0
    assert load_now.num_prefix_hits > 0
    is_windowed = ahead.scheduler.rules.window is not None
    assert (load_now.num_preemptions > 0) == (num_blocks == 15 and not is_windowed)
