"""The real model's answers do not depend on who else is served, nor on how it is scheduled."""

from typing import Any

import pytest

from engine_play import Answer, play, play_alone, tokens_of
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.engine import Engine
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.text_parts import read_text_parts
from smollm2 import smollm2_path

SHARED = "A long time ago, in a small town by the sea, there lived a fisherman who had three sons"
PROMPTS = (
    "The capital of France is",
    f"{SHARED}. The eldest",
    f"{SHARED}. The youngest",
    "def fibonacci(n):",
)
NUM_TOKENS = 12
FLAGS: dict[str, Any] = {"max_num_seqs": 4, "max_model_len": 48, "enable_prefix_caching": False}
NEAR = 1e-3
"""Logits that without the flag may change places, as they are within rounding."""


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokenizer = read_text_parts(smollm2_path())[0]
    return [tokenizer.encode(prompt) for prompt in PROMPTS]


def load(**flags: Any) -> Engine:
    return build_engine(
        EngineConfig(smollm2_path(), device="cpu", dtype="float32", **{**FLAGS, **flags})
    )


def requests(prompts: list[list[int]]) -> list[Request]:
    """Half of them greedy, half seeded."""
    kinds: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 0.8, "seed": 3}]
    return [
        Request(
            str(number),
            prompt,
            SamplingParams(NUM_TOKENS, ignore_eos=True, num_logprobs=2, **kinds[number // 2 % 2]),
        )
        for number, prompt in enumerate(prompts)
    ]


def test_with_the_flag_circumstances_change_no_bit(prompts: list[list[int]]) -> None:
    roomy = load(batch_invariant=True, enable_prefix_caching=True)
    expected = tokens_of(play_alone(roomy, requests(prompts)))
    assert tokens_of(play(roomy, requests(prompts))) == expected
    assert roomy.load_now().num_prefix_hits > 0
    # 46,080 bytes of keys and values a token; 72 tokens hold no four of these requests.
    tight = load(
        batch_invariant=True,
        max_num_batched_tokens=7,
        block_size=4,
        kv_cache_memory_bytes=72 * 46_080,
    )
    assert tokens_of(play(tight, requests(prompts))) == expected
    assert tight.load_now().num_preemptions > 0
    wide = load(batch_invariant=True, block_size=64)
    assert tokens_of(play(wide, requests(prompts))) == expected


def test_without_it_tokens_change_only_where_the_two_best_are_near(
    prompts: list[list[int]],
) -> None:
    engine, cut = load(), load(max_num_batched_tokens=7, block_size=64)
    expected = play_alone(engine, requests(prompts)[:2])
    for answers in (play(engine, requests(prompts)), play(cut, requests(prompts))):
        for key, answer in expected.items():
            check_up_to_near_ties(answer, answers[key])


def check_up_to_near_ties(expected: Answer, answer: Answer) -> None:
    """Compare up to the first token that differs, which must have been a close choice."""
    pairs = zip(expected.token_ids, answer.token_ids, expected.logprobs, strict=True)
    for ours, theirs, scores in pairs:
        if ours != theirs:
            (_, best), (_, second) = scores.top
            assert best - second < NEAR
            return
