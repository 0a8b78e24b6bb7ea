"""Quantised weights and caches over several ranks: cut on group borders, they stay the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forebay_runtime.config import StartError
from forebay_runtime.parallel.followers import Followers
from packed_models import METHODS, W8A8, save_packed
from parallel_play import SIZES, check_spread
from tiny_model import save_tiny

WIDE = {**SIZES, "head_dim": 32, "intermediate_size": 256}
"""256 inputs are two groups of 128, so that each of two ranks has one."""

BYTES = {"quantization": "INT8"}
FEW_BITS = {"quantization": "INT4", "kv_cache_dtype": "int4"}
FUSED = {"hidden_size": 256, "num_attention_heads": 16, "intermediate_size": 256}
LONG = pytest.mark.long

FORMATS = [
    pytest.param("llama", WIDE, BYTES, (2, 1), id="rounded-to-8-bits"),
    pytest.param("llama", WIDE, FEW_BITS, (2, 2), id="rounded-to-4-bits-in-two-stages"),
    pytest.param("llama", WIDE, {"kv_cache_dtype": "int8"}, (4, 1), id="a-cache-held-twice"),
    pytest.param("llama", WIDE, {"kv_cache_dtype": "fp8"}, (2, 1), id="an-fp8-cache", marks=LONG),
    pytest.param("mixtral", WIDE, FEW_BITS, (2, 1), id="experts"),
    pytest.param("phi3", FUSED, BYTES, (2, 1), id="fused-matrices", marks=LONG),
]


@pytest.mark.parametrize(("family", "sizes", "flags", "spread"), FORMATS)
def test_formats_made_at_load_are_those_of_one_process(
    make_model: Callable[..., Path],
    followers: Followers,
    family: str,
    sizes: dict[str, Any],
    flags: dict[str, Any],
    spread: tuple[int, int],
) -> None:
    check_spread(make_model(family, **sizes), followers, *spread, **flags)


ALL_METHODS = METHODS | {"w8a8": W8A8}
FEW = ("awq", "gptq-reordered", "w8a8")


def check_method(folder: Path, followers: Followers, method: str, tp: int, pp: int) -> None:
    plain, packed = folder / "plain", folder / "packed"
    save_tiny(plain, **WIDE)
    save_packed(plain, packed, ALL_METHODS[method])
    check_spread(packed, followers, tp, pp)


@pytest.mark.parametrize("method", FEW)
def test_packed_checkpoints_are_those_of_one_process(
    tmp_path: Path, followers: Followers, method: str
) -> None:
    check_method(tmp_path, followers, method, 2, 1)


@pytest.mark.long
@pytest.mark.parametrize(("tp", "pp"), [(4, 1), (1, 2), (2, 2)], ids=["4", "1x2", "2x2"])
@pytest.mark.parametrize("method", ALL_METHODS)
def test_every_packing_is_that_of_one_process(
    tmp_path: Path, followers: Followers, method: str, tp: int, pp: int
) -> None:
    check_method(tmp_path, followers, method, tp, pp)


def test_a_degree_that_would_cut_a_group_is_refused_with_those_that_do_not(
    tmp_path: Path, followers: Followers
) -> None:
    save_tiny(tmp_path, **WIDE)
    with pytest.raises(StartError, match="-size 4 does not divide .* in groups of 128, .* 1 or 2"):
        check_spread(tmp_path, followers, 4, 1, quantization="INT8")
