"""A KV cache of any dtype: answers are those of an oracle that rounds keys and values alike, and
the same whatever was shared, preempted or read in parts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from engine_play import play, play_alone, tokens_of
from forebay_budget.terms import kv_token_bytes
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.engine import Engine
from forebay_runtime.number_formats import KV_CACHE_DTYPES, to_kv_cache_dtype
from forebay_runtime.request import Request, SamplingParams
from greedy import best_tokens, greedy_answers
from tiny_model import save_tiny

KV_DTYPES = [name for name in KV_CACHE_DTYPES if name not in ("auto", "float32")]
SHARED = [(7 * place + 3) % 131 for place in range(33)]
PROMPTS = {
    "a": [*SHARED, 5],
    "b": [*SHARED, 77, 9],
    "c": [(11 * place + 1) % 131 for place in range(50)],
    "d": [4],
}
NUM_TOKENS = 30


def load(path: Path, kv_cache_dtype: str, **flags: Any) -> Engine:
    flags = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 96, **flags}
    config = EngineConfig(
        path, device="cpu", dtype="float32", block_size=8, kv_cache_dtype=kv_cache_dtype, **flags
    )
    return build_engine(config)


def requests() -> list[Request]:
    sampling = SamplingParams(NUM_TOKENS, temperature=0, ignore_eos=True)
    return [Request(name, prompt, sampling) for name, prompt in PROMPTS.items()]


def round_heads(x: torch.Tensor, kv_dtype: str) -> torch.Tensor:
    """What is left of each head of each token. Shapes: x, out [..., D]."""
    if kv_dtype in ("float16", "bfloat16"):
        return x.to(getattr(torch, kv_dtype)).float()
    if kv_dtype == "fp8":
        return x.clamp(-448, 448).to(torch.float8_e4m3fn).float()
    most = {"int8": 127, "int4": 7}[kv_dtype]
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-20) / most
    return (x / scale).round() * scale


class RoundedCache(DynamicCache):
    """transformers' cache, with keys and values rounded as they are written."""

    def __init__(self, kv_dtype: str) -> None:
        super().__init__()
        self._kv_dtype = kv_dtype

    def update(self, keys: Any, values: Any, *rest: Any, **more: Any) -> Any:
        rounded = (round_heads(each, self._kv_dtype) for each in (keys, values))
        return super().update(*rounded, *rest, **more)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_answers_are_those_of_rounded_keys_and_values(tiny: Path, kv_dtype: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny, attn_implementation="eager")

    def oracle(tokens: torch.Tensor, **more: Any) -> Any:
        return model(tokens, cache=RoundedCache(kv_dtype), use_cache=True, **more)

    answers = greedy_answers(load(tiny, kv_dtype), PROMPTS, NUM_TOKENS)
    for name, answer in answers.items():
        assert best_tokens(oracle, PROMPTS[name], answer) == answer


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_sharing_preemption_and_parts_change_no_token(tiny: Path, kv_dtype: str) -> None:
    roomy = load(tiny, kv_dtype)
    expected = tokens_of(play_alone(load(tiny, kv_dtype, enable_prefix_caching=False), requests()))

    assert tokens_of(play_alone(roomy, requests())) == expected
    assert roomy.load_now().num_prefix_hits > 0
    block_bytes = 8 * kv_token_bytes(roomy.runner.model.config.sizes, 1, kv_dtype)
    tight = load(
        tiny, kv_dtype, kv_cache_memory_bytes=12 * block_bytes, enable_prefix_caching=False
    )
    assert tokens_of(play(tight, requests())) == expected
    assert tight.load_now().num_preemptions > 0
    in_parts = load(tiny, kv_dtype, max_num_batched_tokens=7)
    assert tokens_of(play(in_parts, requests())) == expected


@pytest.mark.parametrize("kv_dtype", ["auto", *KV_DTYPES])
def test_a_cache_takes_the_bytes_that_were_planned(tiny: Path, kv_dtype: str) -> None:
    runner = load(tiny, kv_dtype, kv_cache_memory_bytes=1_000_000).runner
    planned = kv_token_bytes(runner.model.config.sizes, 1, kv_dtype.replace("auto", "float32"))

    assert runner.cache_bytes == runner.num_blocks * 8 * planned
    assert 1_000_000 - 8 * planned < runner.cache_bytes <= 1_000_000


@pytest.mark.parametrize("family", ["gemma2", "mistral", "qwen3"])
def test_windows_caps_and_norms_of_heads_go_with_an_int8_cache(tmp_path: Path, family: str) -> None:
    sizes = {"sliding_window": 12} if family == "mistral" else {}
    save_tiny(tmp_path, family, **sizes)
    engine = load(tmp_path, "int8", batch_invariant=True)
    engine.warm_up()
    alone = tokens_of(play_alone(engine, requests()))

    assert tokens_of(play(engine, requests())) == alone
    assert engine.num_cold == 0


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("fp8_e4m3", "fp8"),
        ("FP8", "fp8"),
        ("int8_per_token_head", "int8"),
        ("int4_per_token_head", "int4"),
        ("Auto", "auto"),
        ("fp8_e5m2", "fp8_e5m2"),
    ],
)
def test_other_names_of_a_dtype_are_understood(asked: str, name: str) -> None:
    assert to_kv_cache_dtype(asked) == name
