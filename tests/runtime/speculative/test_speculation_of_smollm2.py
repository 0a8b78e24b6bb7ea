"""The real model says the same with and without guesses from its text so far, in fewer steps."""

from typing import Any

import pytest

from engine_play import play
from forebay_budget.speculative_config import SpeculativeConfig
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.engine import Engine
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.text_parts import read_text_parts
from smollm2 import smollm2_path

COLOURS = "\n".join(f"Box {number} is blue, and box {number} is large." for number in range(1, 7))
PROMPTS = (
    f"{COLOURS}\nBox 7 is blue,",
    "one two three one two three one two three one two",
    "The capital of France is",
)
NUM_TOKENS = 24


@pytest.fixture(scope="module")
def engine() -> Engine:
    return build_engine(
        EngineConfig(
            smollm2_path(),
            device="cpu",
            dtype="float32",
            max_num_seqs=4,
            max_model_len=256,
            batch_invariant=True,
            speculative=SpeculativeConfig("ngram", 4, prompt_lookup_min=1, prompt_lookup_max=3),
        )
    )


def answers(engine: Engine, **wishes: Any) -> tuple[dict[str, list[int]], int]:
    """What it says to all prompts at once, and in how many steps."""
    tokenizer = read_text_parts(smollm2_path())[0]
    num_steps, step = 0, engine.step

    def counted() -> Any:
        nonlocal num_steps
        num_steps += 1
        return step()

    engine.step = counted  # type: ignore[method-assign]
    try:
        sampling = SamplingParams(NUM_TOKENS, ignore_eos=True, **wishes)
        requests = [Request(prompt, tokenizer.encode(prompt), sampling) for prompt in PROMPTS]
        given = play(engine, requests)
    finally:
        del engine.step
    return {name: answer.token_ids for name, answer in given.items()}, num_steps


@pytest.mark.parametrize(
    "wishes",
    [
        pytest.param({"temperature": 0}, id="greedy"),
        pytest.param({"temperature": 0.5, "seed": 4, "top_p": 0.9}, id="sampled"),
    ],
)
def test_with_guesses_it_says_what_it_says_without(engine: Engine, wishes: dict[str, Any]) -> None:
    proposed, num_steps = answers(engine, **wishes)
    speculation = engine.scheduler.speculation
    engine.scheduler.speculation = None
    try:
        plain, num_plain_steps = answers(engine, **wishes)
    finally:
        engine.scheduler.speculation = speculation
    assert proposed == plain
    assert num_steps <= num_plain_steps
    assert speculation is not None and speculation.counts.num_kept_tokens > 0
