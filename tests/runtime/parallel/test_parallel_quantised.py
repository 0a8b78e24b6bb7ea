"""Several ranks say what one process says also where weights and cache have few bits."""

from pathlib import Path
from typing import Any

import pytest

from engine_play import load_engine
from forebay_runtime.config import StartError
from forebay_runtime.parallel.followers import Followers
from greedy import greedy_answers
from packed_models import METHODS, W8A8, Method, save_packed
from tiny_model import save_tiny

SIZES = {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 8}
SIZES |= {"num_key_value_heads": 2}
"""Groups of 128 end where four ranks' parts do: 8 heads of 32 and 512 are four of 64 and 128."""
FLAGS: dict[str, Any] = {"max_num_seqs": 3, "max_num_batched_tokens": 16, "max_model_len": 64}
PROMPTS = {"a": [(7 * place + 3) % 131 for place in range(21)], "b": [5, 6, 7]}


def check_ranks(path: Path, followers: Followers, tp: int, **flags: Any) -> None:
    expected = greedy_answers(load_engine(path, **FLAGS, **flags), PROMPTS, 10)
    engine = load_engine(path, followers, tensor_parallel_size=tp, **FLAGS, **flags)
    assert greedy_answers(engine, PROMPTS, 10) == expected


USUAL = ("awq", "gptq-reordered", "packed-8-bits-rows")
METHOD_CASES = [
    pytest.param(method, id=name, marks=() if name in USUAL else pytest.mark.long)
    for name, method in METHODS.items()
]


@pytest.mark.parametrize("method", [*METHOD_CASES, pytest.param(W8A8, id="w8a8")])
def test_packed_checkpoints(tmp_path: Path, followers: Followers, method: Method) -> None:
    save_tiny(tmp_path / "plain", **SIZES)
    save_packed(tmp_path / "plain", tmp_path / "packed", method)
    check_ranks(tmp_path / "packed", followers, 2)


FUSED = {"hidden_size": 256, "num_attention_heads": 16}
BYTES, FOUR_BITS = {"quantization": "INT8"}, {"quantization": "INT4"}
LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("family", "tp", "sizes", "flags"),
    [
        pytest.param("llama", 2, {}, BYTES, id="bytes"),
        pytest.param("llama", 2, {}, FOUR_BITS, id="four-bits", marks=LONG),
        pytest.param("mixtral", 2, {}, FOUR_BITS, id="experts"),
        pytest.param("phi3", 2, FUSED, BYTES, id="fused-matrices", marks=LONG),
        pytest.param("llama", 4, {}, {"kv_cache_dtype": "int8"}, id="a-cache-held-twice"),
        pytest.param("llama", 2, {}, {"kv_cache_dtype": "fp8"}, id="an-fp8-cache", marks=LONG),
        pytest.param("llama", 2, {}, FOUR_BITS | {"kv_cache_dtype": "int4"}, id="both"),
    ],
)
def test_rounded_weights_and_caches(
    tmp_path: Path,
    followers: Followers,
    family: str,
    tp: int,
    sizes: dict[str, Any],
    flags: dict[str, Any],
) -> None:
    save_tiny(tmp_path, family, **SIZES | sizes)
    check_ranks(tmp_path, followers, tp, **flags)


def test_a_size_that_cuts_groups_is_refused_before_anything_is_read(
    tmp_path: Path, followers: Followers
) -> None:
    save_tiny(tmp_path, **SIZES)
    with pytest.raises(
        StartError, match="--tensor-parallel-size 4 does not divide the model .*; choose 1 or 2, or"
    ):
        load_engine(tmp_path, followers, tensor_parallel_size=4, quantization="INT8", **FLAGS)
