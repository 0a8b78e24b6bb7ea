"""A GGUF becomes a Hugging Face folder that says of the model what the GGUF does."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from transformers import AutoConfig, AutoTokenizer

from forebay_budget.model_config import read_hf_config
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.loading.checkpoint import open_checkpoint, read_tensor
from forebay_runtime.loading.description import describe_model
from forebay_runtime.quantizing.hf_config import build_config
from forebay_runtime.quantizing.recipe import Recipe
from forebay_runtime.quantizing.refusal import QuantizeError
from forebay_runtime.text_parts import read_text_parts
from greedy import greedy_answers
from smollm2 import smollm2_path
from tiny_model import build_tiny, save_gguf
from tiny_quantized import quantize_tiny

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}
YARN = LINEAR | {"rope_type": "yarn", "original_max_position_embeddings": 64}


def config_of(path: Path) -> tuple[dict[str, Any], Any]:
    blueprint = describe_model(path).blueprint
    checkpoint = open_checkpoint(path, blueprint)

    def read(name: str, size: int) -> torch.Tensor:
        return read_tensor(checkpoint, name, torch.empty(size))

    return build_config(blueprint, read, has_biases=False), blueprint


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        pytest.param("llama", {}, id="llama"),
        pytest.param("llama", {"rope_parameters": LINEAR}, id="llama-linear"),
        pytest.param("llama", {"rope_parameters": YARN}, id="llama-yarn"),
        pytest.param("qwen2", {}, id="qwen2"),
        pytest.param("qwen3", {"tie_word_embeddings": True}, id="qwen3-tied"),
        pytest.param("gemma2", {"tie_word_embeddings": True}, id="gemma2-tied"),
        pytest.param("gemma3", {}, id="gemma3"),
        pytest.param("phi3", {}, id="phi3"),
    ],
)
def test_its_config_is_read_as_the_gguf_is(
    family: str, sizes: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "tiny.gguf"
    save_gguf(path, build_tiny(family, **sizes), gguf.GGMLQuantizationType.Q8_0)
    config, blueprint = config_of(path)

    again = read_hf_config(json.loads(json.dumps(config)), "BF16")
    assert again == replace(blueprint, sizes=replace(blueprint.sizes, dtype=again.sizes.dtype))
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert AutoConfig.from_pretrained(tmp_path).hidden_size == blueprint.sizes.hidden_size


def test_llama_3s_factors_are_recognised(tmp_path: Path) -> None:
    model = build_tiny(rope_parameters=LLAMA3)
    save_gguf(tmp_path / "tiny.gguf", model, gguf.GGMLQuantizationType.Q8_0)
    config, _ = config_of(tmp_path / "tiny.gguf")
    assert config["rope_scaling"] == {
        name: value for name, value in LLAMA3.items() if name != "rope_theta"
    }
    odd = build_tiny(rope_parameters=LLAMA3 | {"factor": 7.0})
    save_gguf(tmp_path / "odd.gguf", odd, gguf.GGMLQuantizationType.Q8_0)
    with pytest.raises(QuantizeError, match="factors that no config.json can state"):
        config_of(tmp_path / "odd.gguf")


def test_a_real_one_answers_and_speaks_as_before(tmp_path: Path) -> None:
    recipe = Recipe("rtn", 8, 64, is_symmetric=True)
    folder = quantize_tiny(smollm2_path(), tmp_path / "out", recipe)
    (tokenizer, template), (was, was_template) = map(read_text_parts, (folder, smollm2_path()))
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = template.render(chat)
    assert prompt == was_template.render(chat)
    token_ids = tokenizer.encode(prompt)
    assert token_ids == was.encode(prompt)
    assert tokenizer.eos_token_ids == was.eos_token_ids
    theirs: Any = AutoTokenizer.from_pretrained(folder)
    assert theirs.apply_chat_template(chat, add_generation_prompt=True)["input_ids"] == token_ids

    flags: dict[str, Any] = {"max_num_seqs": 2, "max_num_batched_tokens": 64, "max_model_len": 256}
    engine = build_engine(EngineConfig(folder, device="cpu", dtype="float32", **flags))
    assert "Paris" in tokenizer.decode(greedy_answers(engine, {"a": token_ids}, 8)["a"])
