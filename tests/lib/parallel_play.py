"""Requests that show whether several ranks say what one process says, and their comparison."""

from pathlib import Path
from typing import Any

import pytest

from engine_play import Answer, load_engine, play
from forebay_runtime.parallel.followers import Followers
from forebay_runtime.request import Request, SamplingParams

FLAGS: dict[str, Any] = {"max_num_seqs": 3, "max_num_batched_tokens": 16}
SIZES = {"hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 2}
"""Two KV heads: over four ranks each is held twice. A vocabulary of 131 is padded to 256."""


def requests(vocab_size: int = 131, num_tokens: int = 10) -> list[Request]:
    """One short, one that takes two steps to read, one that also wants its prompt scored."""
    kinds: list[tuple[int, dict[str, Any]]] = [
        (3, {}),
        (21, {}),
        (18, {"num_prompt_logprobs": 2}),
    ]
    return [
        Request(
            str(length),
            [(7 * place + length) % vocab_size for place in range(length)],
            SamplingParams(num_tokens, temperature=0, ignore_eos=True, num_logprobs=1, **wanted),
        )
        for length, wanted in kinds
    ]


def check_same(answers: dict[str, Answer], expected: dict[str, Answer]) -> None:
    for key, answer in expected.items():
        assert answers[key].token_ids == answer.token_ids
        logprobs = [step.logprob for step in answer.logprobs]
        assert [step.logprob for step in answers[key].logprobs] == pytest.approx(logprobs, abs=2e-4)


def check_spread(path: Path, followers: Followers, tp: int, pp: int, **flags: Any) -> None:
    """Load a model in this process, and over tp * pp ranks, and compare what both say."""
    expected = play(load_engine(path, **FLAGS, **flags), requests())
    spread = {"tensor_parallel_size": tp, "pipeline_parallel_size": pp}
    check_same(play(load_engine(path, followers, **spread, **FLAGS, **flags), requests()), expected)
