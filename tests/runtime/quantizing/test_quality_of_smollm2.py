"""What quantisation costs a real model: calibrated methods lose less than rounding, and how little.

The model lies off its own grid (noisy_smollm2). Texts that are scored are not the calibration's.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from forebay_runtime.evaluating.golden import read_golden
from forebay_runtime.quantizing.command import quantize
from forebay_runtime.quantizing.recipe import Recipe
from forebay_runtime.quantizing.sampling import Sampling
from forebay_runtime.quantizing.settings import QuantizeSettings
from forebay_runtime.server.loader import read_text_parts
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
        sampling=Sampling(num_samples, 256),
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
    assert errors["awq"] < 0.9 * errors["rtn"]
