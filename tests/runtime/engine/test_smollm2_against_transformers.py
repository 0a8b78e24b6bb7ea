"""The real model says, greedily and in float32, what transformers says, token for token."""

from gguf import GGUFReader

from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.text_parts import read_text_parts
from greedy import best_tokens, greedy_answers
from smollm2 import smollm2_path
from transformers_oracle import load_llama

PROMPTS = (
    "The capital of France is",
    "Once upon a time, there was a",
    "def fibonacci(n):",
    "Water boils at a temperature of",
)
NUM_TOKENS = 32


def test_greedy_answers_are_transformers() -> None:
    tokenizer = read_text_parts(smollm2_path())[0]
    prompts = {prompt: tokenizer.encode(prompt) for prompt in PROMPTS}
    config = EngineConfig(smollm2_path(), device="cpu", dtype="float32", max_model_len=256)
    answers = greedy_answers(build_engine(config), prompts, NUM_TOKENS)
    assert [len(answer) for answer in answers.values()] == [NUM_TOKENS] * len(PROMPTS)
    oracle = load_llama(GGUFReader(smollm2_path()))
    expected = {name: best_tokens(oracle, prompts[name], answers[name]) for name in prompts}
    assert answers == expected
