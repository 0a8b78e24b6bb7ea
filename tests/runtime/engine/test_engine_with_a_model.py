"""A tiny model behind the engine: answers are the same alone and in company, and all is warm."""

import random
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.engine import Engine
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.start.out_of_memory import explain_out_of_memory
from native_play import torchs_operators


def load(path: Path, **flags: Any) -> Engine:
    flags = {"max_num_seqs": 5, "max_num_batched_tokens": 48, "block_size": 8, **flags}
    return build_engine(EngineConfig(path, device="cpu", dtype="float32", **flags))


def random_requests(seed: int, number: int, **sampling: Any) -> list[Request]:
    chance = random.Random(seed)
    return [
        Request(
            str(index),
            [chance.randrange(131) for _ in range(chance.randrange(1, 90))],
            SamplingParams(chance.randrange(1, 40), ignore_eos=True, seed=index, **sampling),
        )
        for index in range(number)
    ]


def answer(engine: Engine, requests: Iterable[Request], seed: int = 0) -> dict[str, list[int]]:
    """Every request's tokens, the requests arriving between steps at random."""
    chance = random.Random(seed)
    waiting, tokens = list(requests), defaultdict(list)
    while waiting or engine.has_work:
        while waiting and (not engine.has_work or chance.random() < 0.4):
            engine.add(waiting.pop(0))
        for output in engine.step():
            assert output.error is None
            tokens[output.request_id] += output.token_ids
    return tokens


@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param({"temperature": 0}, id="greedy"),
        pytest.param({"temperature": 0.8, "top_p": 0.9}, id="seeded"),
    ],
)
def test_an_answer_in_company_is_the_answer_alone(tiny: Path, sampling: dict[str, Any]) -> None:
    engine = load(tiny)
    alone = {
        request.request_id: answer(engine, [request])[request.request_id]
        for request in random_requests(1, 12, **sampling)
    }
    assert answer(engine, random_requests(1, 12, **sampling)) == alone


def test_an_answer_survives_being_preempted(tiny: Path) -> None:
    roomy, tight = load(tiny), load(tiny, max_model_len=136, kv_cache_memory_bytes=1_536 * 136)
    requests = random_requests(2, 8, temperature=0)
    expected = answer(roomy, random_requests(2, 8, temperature=0))
    assert answer(tight, requests) == expected
    assert tight.load_now().kv_cache_usage == 0


def test_a_warm_engine_meets_nothing_cold_under_a_mixed_load(tiny: Path) -> None:
    engine = load(tiny)
    engine.warm_up()
    for seed in range(3):
        for sampling in ({"temperature": 0}, {"top_p": 0.9}, {"top_k": 3}, {}):
            answer(engine, random_requests(seed, 9, **sampling), seed)
    assert engine.num_cold == 0


def test_an_engine_that_was_not_warmed_counts_nothing_and_a_new_shape_counts(tiny: Path) -> None:
    with torchs_operators():
        engine = load(tiny)
    answer(engine, random_requests(0, 2, temperature=0))
    assert engine.num_cold == 0
    engine.runner.shapes.end_warm_up()  # type: ignore[attr-defined]
    answer(engine, random_requests(1, 6, temperature=0))
    assert engine.num_cold > 0


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param({"max_num_seqs": 1, "max_num_batched_tokens": 1}, id="one-token-a-step"),
        pytest.param({"max_num_seqs": 11, "max_num_batched_tokens": 300}, id="wider-than-a-prompt"),
        pytest.param({"max_num_seqs": 3, "max_model_len": 2}, id="shortest"),
    ],
)
def test_every_step_that_limits_allow_is_warm(tiny: Path, flags: dict[str, Any]) -> None:
    engine = load(tiny, **flags)
    engine.warm_up()
    requests = random_requests(3, 14, temperature=0)
    answer(engine, [r for r in requests if len(r.prompt_token_ids) < engine.max_model_len])
    if engine.max_model_len == 2:
        answer(engine, [Request(str(n), [n], SamplingParams(1)) for n in range(5)])
    assert engine.num_cold == 0


def test_a_warm_engine_tells_its_memory_and_its_slowest_step(tiny: Path) -> None:
    engine = load(tiny)
    assert engine.vram_terms == ()
    engine.warm_up()
    terms = {term.name: term for term in engine.vram_terms}
    assert list(terms) == ["weights", "kv_cache", "activation", "overhead"]
    assert terms["kv_cache"].measured_bytes == terms["kv_cache"].planned_bytes > 0
    # The plan pads the vocabulary of 131 to 192 rows, twice; the CPU's tiles make them 144.
    padding = 2 * (192 - 144) * 96 * 4
    assert terms["weights"].planned_bytes == terms["weights"].measured_bytes + padding
    assert engine.slowest_warm_step_seconds > 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_dtypes_run_and_stay_near_float32(tiny: Path, dtype: str) -> None:
    narrow = build_engine(EngineConfig(tiny, device="cpu", dtype=dtype, max_num_seqs=2))
    narrow.warm_up()
    exact = load(tiny)
    prompt = random_requests(4, 1, temperature=0)[0].prompt_token_ids
    first = [
        answer(engine, [Request("a", prompt, SamplingParams(1, temperature=0))])["a"]
        for engine in (narrow, exact)
    ]
    assert first[0] == first[1]
    assert narrow.num_cold == 0


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(MemoryError(), id="python"),
        pytest.param(torch.OutOfMemoryError("CUDA out of memory"), id="gpu"),
        pytest.param(
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 1 byte"), id="cpu"
        ),
    ],
)
def test_too_little_memory_names_the_term_and_the_knob(error: Exception) -> None:
    sentence = "too little memory for the KV cache; lower --max-model-len"
    with pytest.raises(StartError, match=sentence):
        with explain_out_of_memory("KV cache", "lower --max-model-len"):
            raise error


def test_a_cache_larger_than_memory_is_refused(tiny: Path) -> None:
    with pytest.raises(StartError, match="too little memory for the KV cache beside the"):
        load(tiny, kv_cache_memory_bytes=2**60)
