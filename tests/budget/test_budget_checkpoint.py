"""Inspecting folders and GGUF files: exact sums, and refusals by name."""

from pathlib import Path
from typing import Any

import pytest

from forebay_budget.checkpoint import inspect_model
from forebay_budget.inspection import ModelConfig, ModelError, WeightGroup
from forebay_budget.safetensors import INDEX_NAME
from model_files import (
    TINY_LLAMA,
    gguf_bytes,
    llama_shapes,
    tiny_gguf,
    write_hf_model,
    write_safetensors,
)
from smollm2 import smollm2_path

QWEN2 = TINY_LLAMA | {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 512}
MISTRAL = TINY_LLAMA | {"architectures": ["MistralForCausalLM"], "sliding_window": None}

SHARDED = 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64)
"""Two layers of TINY_LLAMA's matrices."""
NORMS = 5 * 64
EMBEDDING = 100 * 64


def test_the_real_gguf_has_exactly_the_known_numbers() -> None:
    inspection = inspect_model(smollm2_path())

    assert inspection.config == ModelConfig(
        architecture="LlamaForCausalLM",
        num_layers=30,
        hidden_size=576,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        intermediate_size=1536,
        vocab_size=49152,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        dtype="bfloat16",
    )
    matrices = 30 * (2 * 576 * 576 + 2 * 192 * 576 + 3 * 1536 * 576)
    assert inspection.weights == (
        WeightGroup("embedding", "Q8_0", 49152 * 576, 49152 * 576 // 32 * 34),
        WeightGroup("replicated", "F32", 61 * 576, 61 * 576 * 4),
        WeightGroup("sharded", "Q4_1", matrices, matrices // 32 * 20),
    )
    assert inspection.num_parameters == 134_515_008
    assert (inspection.format, inspection.quantization) == ("gguf", "Q4_1")


@pytest.mark.parametrize("num_shards", [1, 3])
def test_a_folder_is_summed_from_its_headers(tmp_path: Path, num_shards: int) -> None:
    inspection = inspect_model(write_hf_model(tmp_path, num_shards=num_shards))

    assert inspection.weights == (
        WeightGroup("embedding", "BF16", 2 * EMBEDDING, 4 * EMBEDDING),
        WeightGroup("replicated", "BF16", NORMS, 2 * NORMS),
        WeightGroup("sharded", "BF16", SHARDED, 2 * SHARDED),
    )
    assert inspection.config.head_dim == 16
    assert (inspection.format, inspection.quantization) == ("safetensors", None)


@pytest.mark.parametrize(
    ("config", "embeddings", "biases"),
    [
        pytest.param(TINY_LLAMA, 2, 0, id="Llama, untied"),
        pytest.param(TINY_LLAMA | {"tie_word_embeddings": True}, 1, 0, id="Llama, tied"),
        pytest.param(MISTRAL, 2, 0, id="Mistral"),
        pytest.param(QWEN2, 2, 2 * (64 + 32 + 32), id="Qwen2, with biases"),
    ],
)
def test_each_known_family_is_inspected(
    tmp_path: Path, config: dict[str, Any], embeddings: int, biases: int
) -> None:
    inspection = inspect_model(write_hf_model(tmp_path, config))

    assert inspection.config.architecture == config["architectures"][0]
    assert inspection.num_parameters == SHARDED + NORMS + embeddings * EMBEDDING + biases


def test_a_head_size_that_is_not_hidden_over_heads_is_read(tmp_path: Path) -> None:
    inspection = inspect_model(write_hf_model(tmp_path, TINY_LLAMA | {"head_dim": 32}))

    assert inspection.config.head_dim == 32
    assert inspection.weights[2].num_elements == 2 * (2 * 128 * 64 + 2 * 64 * 64 + 3 * 96 * 64)


@pytest.mark.parametrize(
    ("stated", "stored", "dtype"),
    [
        pytest.param({"torch_dtype": "float16"}, "F32", "float16", id="the config's dtype"),
        pytest.param(
            {"torch_dtype": None, "dtype": "float32"}, "BF16", "float32", id="by its new name"
        ),
        pytest.param({"torch_dtype": None}, "F16", "float16", id="else the weights'"),
        pytest.param(
            {"torch_dtype": "float8"}, "F32", "float32", id="also where it is a strange one"
        ),
    ],
)
def test_the_dtype_of_auto_is_known(
    tmp_path: Path, stated: dict[str, Any], stored: str, dtype: str
) -> None:
    config = {key: value for key, value in (TINY_LLAMA | stated).items() if value is not None}

    assert inspect_model(write_hf_model(tmp_path, config, dtype=stored)).config.dtype == dtype


def test_a_tied_head_and_frequency_tables_in_the_files_are_not_counted(tmp_path: Path) -> None:
    config = TINY_LLAMA | {"tie_word_embeddings": True}
    write_hf_model(tmp_path, config)
    table = {"model.layers.0.self_attn.rotary_emb.inv_freq": (8,), "lm_head.weight": (100, 64)}
    write_safetensors(tmp_path / "model.safetensors", llama_shapes(config) | table)

    assert inspect_model(tmp_path).num_parameters == SHARDED + NORMS + EMBEDDING


def test_the_weights_are_never_read(tmp_path: Path) -> None:
    """A terabyte of hole would take its time."""
    config = TINY_LLAMA | {"vocab_size": 2**32 // 2 - 1, "hidden_size": 64}

    assert inspect_model(write_hf_model(tmp_path, config)).weights_bytes > 2**38


def test_the_same_files_have_the_same_revision_and_others_another(tmp_path: Path) -> None:
    first, second = write_hf_model(tmp_path / "a"), write_hf_model(tmp_path / "b")
    other = write_hf_model(tmp_path / "c", TINY_LLAMA | {"vocab_size": 101})

    assert inspect_model(first).revision == inspect_model(second).revision
    assert inspect_model(first).revision.startswith("sha256:")
    assert inspect_model(first).revision != inspect_model(other).revision


def test_all_shards_count_where_no_index_names_them_but_not_mistrals_second_copy(
    tmp_path: Path,
) -> None:
    write_hf_model(tmp_path, num_shards=2)
    (tmp_path / INDEX_NAME).unlink()
    write_safetensors(tmp_path / "consolidated.safetensors", {"tok_embeddings.weight": (100, 64)})

    assert inspect_model(tmp_path).num_parameters == SHARDED + NORMS + 2 * EMBEDDING


@pytest.mark.parametrize(
    ("kind", "dtype", "architecture", "run_dtype", "quantization"),
    [
        ("llama", "Q4_1", "LlamaForCausalLM", "bfloat16", "Q4_1"),
        ("llama", "F16", "LlamaForCausalLM", "float16", None),
        ("mistral", "F32", "MistralForCausalLM", "float32", None),
    ],
)
def test_a_gguf_is_inspected(
    tmp_path: Path,
    kind: str,
    dtype: str,
    architecture: str,
    run_dtype: str,
    quantization: str | None,
) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(*tiny_gguf(kind, dtype)))
    inspection = inspect_model(tmp_path)

    assert inspection.config.architecture == architecture
    assert inspection.config.dtype == run_dtype
    assert inspection.config.tie_word_embeddings
    assert inspection.quantization == quantization
    assert inspection.num_parameters == SHARDED + NORMS + EMBEDDING


@pytest.mark.parametrize(
    ("uri", "complaint"),
    [
        ("oci://registry/model:1", "name the folder"),
        ("pvc://claim/path", "name the folder"),
        ("s3://bucket/model", "unknown scheme"),
        ("hf://onlyname", "hf://organisation/name"),
        ("hf://a/b@", "hf://organisation/name"),
        ("hf://a/b@../../x", "hf://organisation/name"),
        ("hf://a/b?x=1", "hf://organisation/name"),
        ("hf://a/b/c", "hf://organisation/name"),
    ],
)
def test_addresses_that_cannot_be_inspected_are_refused(uri: str, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint) as caught:
        inspect_model(uri)

    assert caught.value.reason == "BadUri"
