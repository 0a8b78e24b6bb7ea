"""What `forebay quantize` writes is what it computed: for our engine, and by the formats' rules."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.quantizers.auto import AutoQuantizationConfig

from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.quantizing.layouts import quantization_config
from forebay_runtime.quantizing.recipe import Recipe
from greedy import best_tokens, greedy_answers
from tiny_quantized import quantize_tiny, save_source
from unpacked_models import read_folder, save_unpacked

PROMPTS = {"a": [(7 * place + 3) % 250 for place in range(37)], "b": [5, 6, 7]}
NUM_TOKENS = 8

RECIPES = {
    "awq": Recipe("awq", 4, 32),
    "awq-rows": Recipe("awq", 4, 0),
    "awq-8-bits": Recipe("awq", 8, 32),
    "awq-symmetric": Recipe("awq", 4, 32, is_symmetric=True),
    "gptq": Recipe("gptq", 4, 32),
    "gptq-symmetric": Recipe("gptq", 4, 32, is_symmetric=True),
    "gptq-reordered": Recipe("gptq", 4, 32, is_reordered=True),
    "gptq-8-bits-rows": Recipe("gptq", 8, 0, is_symmetric=True),
    "rtn": Recipe("rtn", 4, 32),
    "rtn-8-bits": Recipe("rtn", 8, 32, is_symmetric=True),
}


def model_modules(folder: Path) -> set[str]:
    return {name.removesuffix(".weight") for name in read_folder(folder) if "proj.weight" in name}


def load(path: Path, **flags: Any) -> Any:
    flags = {"max_num_seqs": 4, "max_num_batched_tokens": 32, "max_model_len": 128, **flags}
    return build_engine(EngineConfig(path, device="cpu", dtype="float32", block_size=8, **flags))


@pytest.mark.parametrize("name", RECIPES)
def test_the_engine_answers_as_the_numbers_that_the_formats_rules_read(
    name: str, tmp_path: Path
) -> None:
    save_source(tmp_path / "source")
    packed = quantize_tiny(tmp_path / "source", tmp_path / "packed", RECIPES[name])
    plain = save_unpacked(packed, tmp_path / "plain")

    answers = greedy_answers(load(packed), PROMPTS, NUM_TOKENS)
    oracle = AutoModelForCausalLM.from_pretrained(plain)
    for prompt, answer in answers.items():
        assert best_tokens(oracle, PROMPTS[prompt], answer) == answer


@pytest.mark.parametrize("method", ["awq", "gptq", "rtn"])
@pytest.mark.parametrize("family", ["mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3"])
def test_every_dense_family_stays_near_what_it_was(
    family: str, method: Any, tmp_path: Path
) -> None:
    """Eight bits move a random model's logits by little, whatever was folded into what."""
    model = save_source(tmp_path / "source", family)
    packed = quantize_tiny(tmp_path / "source", tmp_path / "packed", Recipe(method, 8, 32))
    oracle = AutoModelForCausalLM.from_pretrained(save_unpacked(packed, tmp_path / "plain"))

    tokens = torch.tensor([PROMPTS["a"]])
    with torch.inference_mode():
        before, after = model(tokens).logits, oracle(tokens).logits
    assert float((after - before).norm() / before.norm()) < 0.15
    answers = greedy_answers(load(packed), PROMPTS, 4)
    assert all(best_tokens(oracle, PROMPTS[name], got) == got for name, got in answers.items())


def test_skipped_modules_stay_plain_with_those_that_share_their_inputs(tmp_path: Path) -> None:
    save_source(tmp_path / "source")
    skipped = ("*.0.self_attn.k_proj", "*down_proj")
    recipe = Recipe("gptq", 4, 32, is_symmetric=True, skipped=skipped)
    packed = quantize_tiny(tmp_path / "source", tmp_path / "packed", recipe)

    kept = model_modules(packed)
    layers = "model.layers."
    assert kept == {
        *(f"{layers}0.self_attn.{part}_proj" for part in "qkv"),
        *(f"{layers}{number}.mlp.down_proj" for number in (0, 1)),
    }
    stated = json.loads((packed / "config.json").read_text())["quantization_config"]
    rules = [rule.removeprefix("-:") for rule in stated["dynamic"]]
    fused = {f"{layers}0.self_attn.qkv_proj"}
    for module in model_modules(tmp_path / "source") | fused:
        is_kept = any(re.match(rule, module) for rule in rules)
        assert is_kept is (module in kept | fused)
    before, after = (read_folder(tmp_path / name) for name in ("source", "packed"))
    assert all(torch.equal(before[f"{name}.weight"], after[f"{name}.weight"]) for name in kept)
    answers = greedy_answers(load(packed), PROMPTS, NUM_TOKENS)
    oracle = AutoModelForCausalLM.from_pretrained(save_unpacked(packed, tmp_path / "plain"))
    assert all(best_tokens(oracle, PROMPTS[name], got) == got for name, got in answers.items())


def test_the_same_command_writes_the_same_bytes(tmp_path: Path) -> None:
    save_source(tmp_path / "source")
    first, second = (
        quantize_tiny(tmp_path / "source", tmp_path / name, RECIPES["awq"]) for name in "ab"
    )
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


@pytest.mark.parametrize("name", RECIPES)
def test_transformers_understands_what_config_says(name: str) -> None:
    recipe = RECIPES[name]
    stated = quantization_config(recipe, ["model.layers.0.mlp.down_proj"])
    theirs: Any = AutoQuantizationConfig.from_dict(stated)
    assert (theirs.bits, theirs.group_size) == (recipe.bits, recipe.group_size or -1)
    if stated["quant_method"] == "gptq":
        assert (theirs.sym, theirs.desc_act) == (recipe.is_symmetric, recipe.is_reordered)
        assert theirs.to_dict()["checkpoint_format"] == "gptq"
    else:
        assert theirs.modules_to_not_convert == ["lm_head", "model.layers.0.mlp.down_proj"]
