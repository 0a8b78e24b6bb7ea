"""Quantised weights and caches over several ranks: cut on group borders, they stay the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forebay_runtime.config import StartError
from forebay_runtime.parallel.followers import Followers
from packed_models import METHODS, Method, compressed, save_packed
from parallel_play import SIZES, check_spread
from tiny_model import save_tiny

WIDE = {**SIZES, "head_dim": 32, "intermediate_size": 256}
"""256 inputs are two groups of 128, so that each of two ranks has one."""

FORMATS = [
    pytest.param({"quantization": "INT8"}, 2, 1, id="rounded-to-8-bits"),
    pytest.param({"quantization": "INT4"}, 2, 2, id="rounded-to-4-bits-in-two-stages"),
    pytest.param({"kv_cache_dtype": "int8"}, 4, 1, id="a-cache-of-8-bits"),
]


@pytest.mark.parametrize(("flags", "tp", "pp"), FORMATS)
def test_formats_made_at_load_are_those_of_one_process(
    tmp_path: Path, followers: Followers, flags: dict[str, Any], tp: int, pp: int
) -> None:
    save_tiny(tmp_path, **WIDE)
    check_spread(tmp_path, followers, tp, pp, **flags)


TOKENS = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}


def round_inputs_too() -> Method:
    """Eight bits a weight, and a token's activations rounded by the largest of all ranks."""
    stated = compressed("int-quantized", 8, symmetric=True, strategy="channel", group_size=None)
    stated["config_groups"]["group_0"]["input_activations"] = TOKENS
    return replace(METHODS["bytes"], stated=stated)


ALL_METHODS = METHODS | {"activations": round_inputs_too()}
FEW = ("awq", "gptq-reordered", "activations")


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
    with pytest.raises(StartError, match="--tensor-parallel-size 4 does not divide .* 1 or 2"):
        check_spread(tmp_path, followers, 4, 1, quantization="INT8")
