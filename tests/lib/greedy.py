"""Greedy answers of an engine, and what transformers would say at each of their places."""

from collections.abc import Mapping
from typing import Any

import torch

from engine_play import play
from forebay_runtime.engine import Engine
from forebay_runtime.request import Request, SamplingParams


def greedy_answers(
    engine: Engine, prompts: Mapping[str, list[int]], num_tokens: int
) -> dict[str, list[int]]:
    """The engine's answers to all prompts at once."""
    sampling = SamplingParams(num_tokens, temperature=0, ignore_eos=True)
    requests = [Request(name, token_ids, sampling) for name, token_ids in prompts.items()]
    return {name: answer.token_ids for name, answer in play(engine, requests).items()}


def best_tokens(oracle: Any, prompt: list[int], answer: list[int]) -> list[int]:
    """What the oracle says at each place of an answer, given what was said before.

    Where that is the answer itself, it is the oracle's own greedy answer, found in one pass.
    """
    with torch.inference_mode():
        tokens = torch.tensor([prompt + answer[:-1]])
        logits = oracle(tokens, logits_to_keep=len(answer)).logits[0]
    best: list[int] = logits.argmax(-1).tolist()
    return best
