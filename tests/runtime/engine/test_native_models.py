"""The CPU's own kernels say what torch's operators say: whole models, token for token."""

from __future__ import annotations

import random
import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine_play import Answer, load_engine, play, play_alone, tokens_of
from forebay_kernels.cpu import recording
from forebay_runtime.request import Request, SamplingParams
from native_play import load_native_engine, load_torch_engine
from product_oracle import instructions, usable_isas
from tiny_model import FAMILIES, save_tiny

MIXTURES = ["mixtral", "qwen2_moe", "qwen3_moe"]
RECORDED = [family for family in FAMILIES if family not in MIXTURES]
LENGTHS = (1, 2, 15, 16, 17, 31, 33, 50)
FLAGS: dict[str, Any] = {"max_num_seqs": 8, "max_model_len": 128}
PAGE_BYTES = resource.getpagesize()
NEAR = 1e-3
"""Logprobs that rounding in another order may put in another order."""


def build_requests(num_tokens: int = 12) -> list[Request]:
    """Greedy, of odd lengths; two begin alike."""
    chance = random.Random(11)
    prompts = [[chance.randrange(3, 131) for _ in range(length)] for length in LENGTHS]
    prompts[-1][:32] = prompts[-2][:32]
    sampling = SamplingParams(num_tokens, temperature=0, ignore_eos=True, num_logprobs=2)
    return [Request(str(number), prompt, sampling) for number, prompt in enumerate(prompts)]


def check_same(expected: dict[str, Answer], answers: dict[str, Answer]) -> None:
    """Up to the first choice between two that are as good, tokens and scores are the same."""
    for key, answer in expected.items():
        for ours, theirs, mine, other in zip(
            answers[key].token_ids,
            answer.token_ids,
            answers[key].logprobs,
            answer.logprobs,
            strict=True,
        ):
            assert mine.logprob == pytest.approx(other.logprob, abs=NEAR)
            if ours != theirs:
                (_, best), (_, second) = other.top
                assert best - second < NEAR
                break


@pytest.mark.parametrize("family", RECORDED)
def test_a_family_answers_as_by_torchs_operators(saved: Callable[[str], Path], family: str) -> None:
    expected = play(load_torch_engine(saved(family), **FLAGS), build_requests())
    check_same(expected, play(load_native_engine(saved(family), **FLAGS), build_requests()))


@pytest.mark.parametrize("isa", usable_isas())
def test_each_set_of_instructions_answers_alike(saved: Callable[[str], Path], isa: str) -> None:
    expected = play(load_torch_engine(saved("llama"), **FLAGS), build_requests())
    with instructions(isa):
        check_same(expected, play(load_native_engine(saved("llama"), **FLAGS), build_requests()))


@pytest.mark.parametrize("kv_cache_dtype", ["bfloat16", "float16", "fp8", "int8", "int4"])
def test_each_kind_of_cache_answers_alike(
    saved: Callable[[str], Path], kv_cache_dtype: str
) -> None:
    flags = {**FLAGS, "kv_cache_dtype": kv_cache_dtype}
    expected = play(load_torch_engine(saved("llama"), **flags), build_requests(4))
    check_same(expected, play(load_native_engine(saved("llama"), **flags), build_requests(4)))


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param({"max_num_batched_tokens": 9}, id="chunks-of-9"),
        pytest.param({"block_size": 64}, id="blocks-of-64"),
        pytest.param({"block_size": 1}, id="blocks-of-1"),
    ],
)
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_circumstances_change_no_bit_without_being_asked(
    saved: Callable[[str], Path], family: str, flags: dict[str, Any]
) -> None:
    path = saved(family)
    expected = tokens_of(play_alone(load_native_engine(path, **FLAGS), build_requests()))
    engine = load_native_engine(path, **{**FLAGS, **flags})
    assert tokens_of(play(engine, build_requests())) == expected
    # Now what the prompts begin with may be found in the cache.
    assert tokens_of(play(engine, build_requests())) == expected


@pytest.mark.parametrize("family", MIXTURES)
def test_mixtures_run_operation_by_operation(saved: Callable[[str], Path], family: str) -> None:
    expected = play(load_torch_engine(saved(family), **FLAGS), build_requests(4))
    engine = load_engine(saved(family), **FLAGS)
    runner: Any = engine.runner
    assert not runner.is_native
    check_same(expected, play(engine, build_requests(4)))


def test_an_operation_without_an_instruction_is_named_and_runs_as_before(
    saved: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected = play(load_torch_engine(saved("llama"), **FLAGS), build_requests(4))
    monkeypatch.delattr(recording, "silu_mul")
    engine = load_engine(saved("llama"), **FLAGS)
    runner: Any = engine.runner
    assert not runner.is_native
    [warning] = [each for each in caplog.records if "Recorded no steps" in each.message]
    assert warning.levelname == "WARNING"
    assert warning.message.endswith("which is slower: a program has no instruction for silu_mul")
    check_same(expected, play(engine, build_requests(4)))


def test_engines_that_run_at_once_in_a_process_answer_as_alone(
    saved: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with threads for all of a CPU."""
    monkeypatch.setattr("forebay_runtime.start.native_choice.usable_cpus", lambda: 3)
    families = ["llama", "gemma3", "llama"]
    expected = {
        family: tokens_of(play(load_native_engine(saved(family), **FLAGS), build_requests()))
        for family in families
    }
    engines = [load_native_engine(saved(family), **FLAGS) for family in families]
    with ThreadPoolExecutor(len(engines)) as threads:
        for _ in range(3):
            playing = [threads.submit(play, engine, build_requests()) for engine in engines]
            answers = [tokens_of(each.result()) for each in playing]
            assert answers == [expected[family] for family in families]


def test_a_warm_engine_has_touched_the_memory_of_its_largest_step(tmp_path: Path) -> None:
    """A step of 512 tokens works in 24 MiB beside the cache's 768 KiB."""
    save_tiny(tmp_path, intermediate_size=4096, max_position_embeddings=1024)
    engine = load_native_engine(tmp_path, max_num_batched_tokens=512, kv_cache_memory_bytes=2**20)
    engine.warm_up()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    play(engine, [Request("long", [5] * 511, SamplingParams(1, temperature=0))])
    touched_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * PAGE_BYTES
    assert touched_bytes < 6 * 2**20
