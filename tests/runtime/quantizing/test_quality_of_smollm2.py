"""What quantisation costs a real model: calibrated methods lose less than rounding, and how little.

The model lies off its own grid (noisy_smollm2). Texts that are scored are not the calibration's.
"""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from forebay_runtime.config import EngineConfig
from forebay_runtime.evaluating.answering import measure
from forebay_runtime.evaluating.golden import Golden, read_golden
from forebay_runtime.loading.description import describe_model
from forebay_runtime.quantizing.command import quantize
from forebay_runtime.quantizing.excerpt import Excerpt
from forebay_runtime.quantizing.recipe import Recipe
from forebay_runtime.quantizing.settings import QuantizeSettings
from forebay_runtime.text_parts import read_text_parts
from home import REPOSITORY
from noisy_smollm2 import save_noisy_smollm2
from unpacked_models import save_unpacked

TEXTS = REPOSITORY / "bench/evaluation"
RECIPES = {
    "rtn": Recipe("rtn", 4, 64),
    "awq": Recipe("awq", 4, 64),
    "gptq": Recipe("gptq", 4, 64),
}


def quantize_into(reference: Path, out: Path, recipe: Recipe, num_samples: int | None) -> Path:
    settings = QuantizeSettings(
        str(reference),
        out,
        recipe,
        TEXTS / "calibration.jsonl" if recipe.is_calibrated else None,
        excerpt=Excerpt(num_samples, 256),
        device="cpu",
    )
    quantize(settings)
    return out


def test_the_states_behind_its_first_layer_err_least_by_calibrated_methods(tmp_path: Path) -> None:
    reference = save_noisy_smollm2(tmp_path / "reference", num_layers=1)
    tokenizer, _ = read_text_parts(reference)
    texts = [text.messages[1]["content"] for text in read_golden(TEXTS / "golden.jsonl").texts[:6]]
    tokens = torch.tensor([tokenizer.encode(text)[:200] for text in texts])

    def states(folder: Path) -> Any:
        with torch.inference_mode():
            return AutoModelForCausalLM.from_pretrained(folder).model(tokens).last_hidden_state

    wanted, errors = states(reference), {}
    for name, recipe in RECIPES.items():
        packed = quantize_into(reference, tmp_path / name, recipe, 12)
        got = states(save_unpacked(packed, tmp_path / f"{name}-plain"))
        errors[name] = float((got - wanted).norm() / wanted.norm())
    assert errors["gptq"] < 0.7 * errors["rtn"]
    assert errors["awq"] < 0.7 * errors["rtn"]


@pytest.mark.long
def test_its_perplexity_grows_by_little_where_it_is_calibrated(tmp_path: Path) -> None:
    """Bytes cost nothing that anyone would notice; four bits a small part of what rounding costs.

    The noise alone takes the model's perplexity on such texts from 7 to over 60, and leaves one
    that any further noise hurts as much: rounding it to four bits costs three quarters more.
    """
    reference = save_noisy_smollm2(tmp_path / "reference")
    golden = read_golden(TEXTS / "golden.jsonl")
    golden = Golden(golden.texts[:20], ())
    before = perplexity(reference, golden)
    increase = {}
    for name, recipe in {"int8": Recipe("gptq", 8, 64, is_symmetric=True), **RECIPES}.items():
        packed = quantize_into(reference, tmp_path / name, recipe, None)
        increase[name] = math.log(perplexity(packed, golden) / before)
    assert abs(increase["int8"]) < 0.005
    assert increase["gptq"] < 0.2 * increase["rtn"]
    assert increase["awq"] < 0.2 * increase["rtn"]


def perplexity(model: Path, golden: Golden) -> float:
    flags: dict[str, Any] = {"max_model_len": 640, "max_num_batched_tokens": 640}
    config = EngineConfig(model, device="cpu", dtype="float32", max_num_seqs=4, **flags)
    measured = measure(config, describe_model(model), golden, 1, lambda *_: None).perplexity
    if measured is None:
        raise AssertionError("no text was scored")
    return measured
