"""Whole engines by the GPU's kernels, under Triton's interpreter: greedy as the oracle is."""

from pathlib import Path
from typing import Any

import pytest

from engine_play import load_engine
from greedy import best_tokens, greedy_answers
from tiny_model import save_tiny

pytestmark = pytest.mark.interpreted

_LIMITS = {"max_num_seqs": 3, "max_num_batched_tokens": 16, "max_model_len": 64, "block_size": 4}
"""Prompts are read in parts beside decodes, and lie over several blocks."""
_PROMPTS = {"short": [7], "within a window": list(range(3, 9)), "long": list(range(20, 39))}
_NUM_TOKENS = 4


@pytest.mark.parametrize(
    ("family", "flags"),
    [
        pytest.param("llama", {}, id="dense"),
        pytest.param("qwen3", {}, id="norms of heads"),
        pytest.param("gemma2", {}, id="a window and caps"),
        pytest.param("qwen3_moe", {}, id="a mixture"),
        pytest.param("llama", {"batch_invariant": True}, id="batch-invariant"),
        pytest.param("qwen3", {"async_scheduling": True}, id="a step in flight"),
    ],
)
def test_greedy_answers_are_the_oracles(family: str, flags: dict[str, Any], tmp_path: Path) -> None:
    oracle = save_tiny(tmp_path, family)
    answers = greedy_answers(load_engine(tmp_path, **_LIMITS, **flags), _PROMPTS, _NUM_TOKENS)
    for name, answer in answers.items():
        assert answer == best_tokens(oracle, _PROMPTS[name], answer), name
