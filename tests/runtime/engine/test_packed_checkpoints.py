"""A quantised checkpoint answers token by token as the plain one of the numbers that it stands for.

Files are built by the formats' published layouts, apart from the runtime; transformers needs a
package for each method, and reads the plain ones.
"""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from forebay_budget.cpu_terms import is_program
from forebay_budget.inspection import ModelError
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.engine import Engine
from forebay_runtime.loading.description import describe_model
from greedy import best_tokens, greedy_answers
from packed_models import METHODS, W8A8, Method, save_packed
from tiny_model import save_tiny

PROMPTS = {
    name: [(step * place + 3) % 131 for place in range(length)]
    for name, step, length in (("a", 7, 23), ("b", 11, 5), ("c", 29, 41))
}
NUM_TOKENS = 12


def load(path: Path, **flags: Any) -> Engine:
    flags = {"max_num_seqs": 4, "max_num_batched_tokens": 32, "max_model_len": 128, **flags}
    return build_engine(EngineConfig(path, device="cpu", dtype="float32", block_size=8, **flags))


def save_both(
    tmp_path: Path,
    method: Method,
    family: str = "llama",
    skipped: tuple[str, ...] = (),
    **sizes: Any,
) -> tuple[Path, Path]:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    save_tiny(plain, family, **sizes)
    save_packed(plain, packed, method, skipped)
    return plain, packed


@pytest.mark.parametrize("name", METHODS)
def test_a_packed_checkpoint_answers_as_the_plain_one_it_stands_for(
    name: str, tmp_path: Path
) -> None:
    plain, packed = save_both(tmp_path, METHODS[name])
    answers = greedy_answers(load(packed), PROMPTS, NUM_TOKENS)

    assert answers == greedy_answers(load(plain), PROMPTS, NUM_TOKENS)
    oracle = AutoModelForCausalLM.from_pretrained(plain)
    for prompt, answer in answers.items():
        assert best_tokens(oracle, PROMPTS[prompt], answer) == answer


@pytest.mark.parametrize(
    ("method", "family"),
    [
        pytest.param(METHODS["gptq"], "llama", id="packed"),
        pytest.param(METHODS["gptq"], "mixtral", id="a-mixture"),
        pytest.param(W8A8, "llama", id="rounded-activations"),
    ],
)
def test_only_what_runs_as_a_program_is_sized_as_one(
    method: Method, family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, packed = save_both(tmp_path, method, family)
    with caplog.at_level(logging.INFO):
        load(packed)

    sizes = describe_model(packed).blueprint.sizes
    assert is_program(sizes, "float32") == ("Recorded steps kernels" in caplog.text)


@pytest.mark.parametrize(
    ("family", "sizes", "skipped"),
    [
        pytest.param("llama", {"attention_bias": True, "mlp_bias": True}, (), id="biases"),
        pytest.param("llama", {}, ("q_proj", "1.mlp.up_proj"), id="parts-of-a-product-skipped"),
        pytest.param("llama", {"tie_word_embeddings": True}, ("0.mlp.down_proj",), id="tied"),
        pytest.param("phi3", {}, (), id="fused"),
        pytest.param("mixtral", {}, (), id="experts"),
        pytest.param("qwen2_moe", {}, ("shared_expert.up_proj",), id="a-shared-expert"),
        pytest.param("gemma2", {}, (), id="norms-behind"),
    ],
)
def test_of_every_shape_of_model(
    family: str, sizes: dict[str, Any], skipped: tuple[str, ...], tmp_path: Path
) -> None:
    plain, packed = save_both(tmp_path, METHODS["gptq-asymmetric"], family, skipped, **sizes)

    assert greedy_answers(load(packed), PROMPTS, NUM_TOKENS) == greedy_answers(
        load(plain), PROMPTS, NUM_TOKENS
    )


def test_parts_that_are_ordered_differently_are_products_side_by_side(tmp_path: Path) -> None:
    plain, packed = save_both(tmp_path, METHODS["gptq-reordered"])
    stored = load_file(packed / "model.safetensors")
    name, originals = "model.layers.0.self_attn.k_proj", load_file(plain / "model.safetensors")
    order = torch.randperm(96, generator=torch.Generator().manual_seed(5))
    # The same columns elsewhere: codes are packed down the columns, so they are unpacked first.
    words = stored[f"{name}.qweight"]
    codes = torch.stack([words >> (4 * place) & 15 for place in range(8)], 1).flatten(0, 1)[order]
    shifted = codes.unflatten(0, (-1, 8)).long() << (4 * torch.arange(8)).view(1, -1, 1)
    packed_again = shifted.sum(1).to(torch.uint32).view(torch.int32)
    stored[f"{name}.qweight"] = packed_again
    stored[f"{name}.g_idx"] = stored[f"{name}.g_idx"][order]
    originals[f"{name}.weight"] = originals[f"{name}.weight"][:, order].contiguous()
    save_file(stored, packed / "model.safetensors", metadata={"format": "pt"})
    save_file(originals, plain / "model.safetensors", metadata={"format": "pt"})

    assert greedy_answers(load(packed), PROMPTS, NUM_TOKENS) == greedy_answers(
        load(plain), PROMPTS, NUM_TOKENS
    )


def test_rounded_activations_answer_as_an_oracle_that_rounds_them(tmp_path: Path) -> None:
    plain, packed = save_both(tmp_path, W8A8)
    oracle = AutoModelForCausalLM.from_pretrained(plain)

    def round_inputs(module: torch.nn.Module, inputs: Any) -> Any:
        scale = inputs[0].abs().amax(-1, keepdim=True).clamp(min=1e-20) / 127
        return ((inputs[0] / scale).round() * scale,)

    for name, module in oracle.named_modules():
        if isinstance(module, torch.nn.Linear) and ".layers." in name:
            module.register_forward_pre_hook(round_inputs)
    answers = greedy_answers(load(packed), PROMPTS, NUM_TOKENS)
    for prompt, answer in answers.items():
        assert best_tokens(oracle, PROMPTS[prompt], answer) == answer


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        pytest.param(
            {"quantization": "INT8"},
            "--quantization is INT8, but the checkpoint's weights are quantised to 4 bits already",
            id="rounded-twice",
        ),
        pytest.param(
            {"quantization": "gptq"},
            "--quantization gptq asks .* this one is awq, 4 bits, groups of 32; choose Auto",
            id="another-method",
        ),
    ],
)
def test_a_flag_that_the_checkpoint_contradicts_is_refused(
    flags: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    _, packed = save_both(tmp_path, METHODS["awq"])
    with pytest.raises(StartError, match=sentence):
        load(packed, **flags)


@pytest.mark.parametrize("asked", ["None", "Auto", "INT4", "awq"])
def test_a_quantised_checkpoint_is_served_as_it_is(asked: str, tmp_path: Path) -> None:
    _, packed = save_both(tmp_path, METHODS["awq"])
    model = load(packed, quantization=asked).runner.model
    inner = 2 * (96 * (2 * 192 + 2 * 96) + 3 * 160 * 96)
    rest = 2 * 144 * 96 + 5 * 96  # 131 tokens in tiles of 16

    assert model.num_bytes == inner * (16 + 2 + 1) // 32 + 4 * rest


def damage(folder: Path, ending: str | tuple[str, ...], value: Any) -> None:
    stored = load_file(folder / "model.safetensors")
    name = next(name for name in stored if name.endswith(ending))
    stored[name] = value(stored[name])
    save_file(stored, folder / "model.safetensors")


def test_an_index_of_unequal_groups_is_refused_by_the_matrix_name(tmp_path: Path) -> None:
    _, packed = save_both(tmp_path, METHODS["gptq-reordered"])
    damage(packed, "q_proj.g_idx", torch.zeros_like)

    with pytest.raises(ModelError, match=r"q_proj cannot be served as it is packed: g_idx does"):
        load(packed)


@pytest.mark.parametrize("name", METHODS)
def test_a_scale_that_is_no_number_is_refused_by_the_matrix_name(tmp_path: Path, name: str) -> None:
    _, packed = save_both(tmp_path, METHODS[name])
    damage(packed, ("down_proj.scales", "down_proj.weight_scale"), nan_like)

    with pytest.raises(ModelError, match=r"mlp\.down_proj has weights that are NaN or infinite"):
        load(packed)


def nan_like(numbers: torch.Tensor) -> torch.Tensor:
    return torch.full_like(numbers, torch.nan)


def test_a_config_that_hides_the_packing_is_refused(tmp_path: Path) -> None:
    _, packed = save_both(tmp_path, METHODS["awq"])
    document = json.loads((packed / "config.json").read_text())
    del document["quantization_config"]
    (packed / "config.json").write_text(json.dumps(document))

    with pytest.raises(ModelError, match=r"lacks 14 of .*q_proj\.weight"):
        load(packed)
