"""The real model says, greedily and in float32, what transformers says, token for token."""

from typing import Any

import pytest
import torch
from gguf import GGUFReader
from transformers import AutoTokenizer

from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.request import Request, SamplingParams
from smollm2 import smollm2_path
from transformers_oracle import load_llama

PROMPTS = (
    "The capital of France is",
    "Once upon a time, there was a",
    "def fibonacci(n):",
    "Water boils at a temperature of",
)
NUM_TOKENS = 32


@pytest.fixture(scope="module")
def prompts() -> dict[str, list[int]]:
    path = smollm2_path()
    tokenizer: Any = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    return {prompt: tokenizer(prompt).input_ids for prompt in PROMPTS}


@pytest.fixture(scope="module")
def expected(prompts: dict[str, list[int]]) -> dict[str, list[int]]:
    model = load_llama(GGUFReader(smollm2_path()))
    model.generation_config.eos_token_id = None
    answers = {}
    for prompt, token_ids in prompts.items():
        with torch.inference_mode():
            output = model.generate(
                torch.tensor([token_ids]),
                attention_mask=torch.ones(1, len(token_ids), dtype=torch.int64),
                do_sample=False,
                max_new_tokens=NUM_TOKENS,
                pad_token_id=0,
            )
        answers[prompt] = output[0, len(token_ids) :].tolist()
    return answers


def test_greedy_answers_are_transformers(
    prompts: dict[str, list[int]], expected: dict[str, list[int]]
) -> None:
    config = EngineConfig(smollm2_path(), device="cpu", dtype="float32", max_model_len=256)
    engine = build_engine(config)
    greedy = SamplingParams(NUM_TOKENS, temperature=0, ignore_eos=True)
    answers: dict[str, list[int]] = {prompt: [] for prompt in prompts}
    for prompt, token_ids in prompts.items():
        engine.add(Request(prompt, token_ids, greedy))
    while engine.has_work:
        for output in engine.step():
            answers[output.request_id] += output.token_ids
    assert answers == expected
