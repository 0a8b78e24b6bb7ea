"""`--quantization INT8|INT4` rounds a plain checkpoint's matrices while they are read, and no more.

The oracle rounds them here, in numpy, and serves the result as a plain checkpoint.
"""

import shutil
import weakref
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from forebay_budget.checkpoint import inspect_model
from forebay_budget.inspection import ModelError
from forebay_budget.rounding import divides_groups
from forebay_budget.terms import weights_bytes
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.engine import Engine
from greedy import greedy_answers
from native_play import torchs_operators
from tiny_model import build_tiny, save_gguf, save_tiny

PROMPTS = {"a": [(7 * place + 3) % 131 for place in range(37)], "b": [5, 6, 7]}
NUM_TOKENS = 12
KEPT = (".gate.weight", ".shared_expert_gate.weight")


def load(path: Path, **flags: Any) -> Engine:
    flags = {"max_num_seqs": 4, "max_num_batched_tokens": 32, "max_model_len": 128, **flags}
    return build_engine(EngineConfig(path, device="cpu", dtype="float32", block_size=8, **flags))


def round_weight(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """To the nearest of each group's grid: an even one for bytes, with a zero for four bits."""
    size = next(size for size in (128, 64, 32, weight.shape[1]) if weight.shape[1] % size == 0)
    groups = weight.numpy().reshape(len(weight), -1, size)
    if bits == 8:
        scales = np.abs(groups).max(2, keepdims=True) / np.float32(127)
        codes, zeros = np.clip(np.round(groups / scales), -128, 127), np.float32(0)
    else:
        low = np.minimum(groups.min(2, keepdims=True), 0)
        high = np.maximum(groups.max(2, keepdims=True), 0)
        scales = (high - low) / np.float32(15)
        zeros = np.round(-low / scales)
        codes = np.clip(np.round(groups / scales) + zeros, 0, 15)
    return torch.from_numpy(((codes - zeros) * scales).reshape(weight.shape))


def save_rounded(plain: Path, folder: Path, bits: int) -> Path:
    shutil.copytree(plain, folder)
    stored = load_file(plain / "model.safetensors")
    for name, weight in stored.items():
        if ".layers." in name and weight.ndim == 2 and not name.endswith(KEPT):
            stored[name] = round_weight(weight, bits)
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen2_moe", "phi3", "gemma3"])
def test_answers_are_those_of_the_rounded_numbers(tmp_path: Path, family: str, bits: int) -> None:
    save_tiny(tmp_path / "plain", family)
    rounded = save_rounded(tmp_path / "plain", tmp_path / "rounded", bits)

    engine = load(tmp_path / "plain", quantization=f"INT{bits}")
    assert greedy_answers(engine, PROMPTS, NUM_TOKENS) == greedy_answers(
        load(rounded), PROMPTS, NUM_TOKENS
    )


def test_rows_that_no_group_divides_have_one_scale_each(tmp_path: Path) -> None:
    save_tiny(tmp_path / "plain", intermediate_size=176)
    rounded = save_rounded(tmp_path / "plain", tmp_path / "rounded", 8)

    engine = load(tmp_path / "plain", quantization="INT8")
    assert greedy_answers(engine, PROMPTS, NUM_TOKENS) == greedy_answers(
        load(rounded), PROMPTS, NUM_TOKENS
    )


def test_ranks_do_not_share_a_row_that_has_one_scale(tmp_path: Path) -> None:
    save_tiny(tmp_path, intermediate_size=176)
    config = inspect_model(tmp_path).config
    assert not divides_groups(config, 2, "INT8")
    assert divides_groups(config, 2, "None")


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(
    ("family", "sizes", "least_share"),
    [
        pytest.param("llama", {"head_dim": 16}, 1.0, id="one-group-size"),
        pytest.param("qwen2_moe", {}, 0.97, id="several-of-which-the-plan-knows-the-smallest"),
    ],
)
def test_weights_take_the_bytes_that_were_planned(
    tmp_path: Path, bits: int, family: str, sizes: dict[str, Any], least_share: float
) -> None:
    save_tiny(tmp_path, family, **sizes)
    planned = weights_bytes(inspect_model(tmp_path), 1, "float32", f"INT{bits}")
    planned -= 2 * (192 - 131) * 96 * 4  # the vocabulary's padding, which ranks would share
    with torchs_operators():
        measured = load(tmp_path, quantization=f"INT{bits}").runner.model.num_bytes

    assert least_share * planned <= measured <= planned


@pytest.mark.parametrize("bits", [8, 4])
def test_the_cpus_tiles_take_what_was_planned(tmp_path: Path, bits: int) -> None:
    save_tiny(tmp_path, head_dim=16)
    planned = weights_bytes(inspect_model(tmp_path), 1, "float32", f"INT{bits}", is_native=True)
    planned -= 2 * (192 - 144) * 96 * 4  # 131 tokens in tiles of 16
    measured = load(tmp_path, quantization=f"INT{bits}").runner.model.num_bytes

    assert measured == planned


def test_a_ggufs_matrices_are_rounded_too(tmp_path: Path) -> None:
    save_gguf(tmp_path / "tiny.gguf", build_tiny(), gguf.GGMLQuantizationType.Q8_0)
    whole, rounded = load(tmp_path), load(tmp_path, quantization="INT8")

    floats = weights_bytes(inspect_model(tmp_path), 1, "float32")
    assert rounded.runner.model.num_bytes < floats / 2
    prompt = {"a": PROMPTS["a"]}
    assert greedy_answers(rounded, prompt, 4) == greedy_answers(whole, prompt, 4)


def test_a_matrix_that_no_group_divides_is_refused_before_it_is_read(tmp_path: Path) -> None:
    save_tiny(tmp_path, intermediate_size=150)
    with pytest.raises(
        StartError,
        match="--quantization is INT4, but the model has matrices of 150 inputs, which are neither "
        "groups of 128, 64, 32 nor, for one scale a row, a multiple of 32; leave it out$",
    ):
        load(tmp_path, quantization="INT4")


def test_never_is_the_whole_model_held_in_floating_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read of a checkpoint is let go before the next but one is read."""
    save_tiny(tmp_path, num_hidden_layers=6)
    alive: list[weakref.ref[torch.Tensor]] = []
    most, make = 0, torch.empty

    def watch(*args: Any, **kwargs: Any) -> torch.Tensor:
        nonlocal most
        tensor = make(*args, **kwargs)
        alive.append(weakref.ref(tensor))
        held = [one for one in (ref() for ref in alive) if one is not None and one.ndim == 2]
        most = max(most, len(held))
        return tensor

    monkeypatch.setattr(torch, "empty", watch)
    load(tmp_path, quantization="INT8")
    # Embedding and head, which stay, and the one that is being rounded; or a step's results.
    assert most <= 2 + 2


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers_are_refused_by_the_matrix_name(
    tmp_path: Path, bits: int, value: float
) -> None:
    save_tiny(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    stored["model.layers.1.mlp.down_proj.weight"][3, 5] = value
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"mlp\.down_proj has weights that are NaN or infinite"):
        load(tmp_path, quantization=f"INT{bits}")
