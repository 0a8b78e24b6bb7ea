"""Inspecting folders and GGUF files: exact sums, and refusals by name."""

import json
import struct
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


@pytest.mark.parametrize(
    ("change", "reason", "complaint"),
    [
        pytest.param(
            {"architectures": ["GPT2LMHeadModel"]},
            "UnsupportedArchitecture",
            "GPT2LMHeadModel is not supported; supported are LlamaForCausalLM, "
            "MistralForCausalLM, Qwen2ForCausalLM",
            id="an unknown architecture, by name, with the known ones",
        ),
        pytest.param({"architectures": []}, "BadConfig", "no architecture", id="no architecture"),
        pytest.param(
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            "UnsupportedRopeScaling",
            "llama3",
            id="rope scaling",
        ),
        pytest.param(
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            "UnsupportedRopeScaling",
            "linear",
            id="rope scaling by its old name",
        ),
        pytest.param(
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}},
            "UnsupportedRopeScaling",
            "yarn",
            id="rope scaling by its new name",
        ),
        pytest.param(
            {"partial_rotary_factor": 0.5}, "UnsupportedConfig", "0.5", id="partial rotation"
        ),
        pytest.param(
            {"architectures": ["MistralForCausalLM"], "sliding_window": 4096},
            "UnsupportedSlidingWindow",
            "4096",
            id="Mistral with a window",
        ),
        pytest.param(
            {"architectures": ["MistralForCausalLM"]},
            "UnsupportedSlidingWindow",
            "4096",
            id="Mistral that names none, which means 4096",
        ),
        pytest.param(
            {
                "architectures": ["Qwen2ForCausalLM"],
                "sliding_window": 512,
                "use_sliding_window": True,
            },
            "UnsupportedSlidingWindow",
            "512",
            id="Qwen2 with its window in use",
        ),
        pytest.param(
            {"layer_types": ["full_attention", "sliding_attention"]},
            "UnsupportedSlidingWindow",
            "sliding window",
            id="a window in some layers",
        ),
        pytest.param(
            {"quantization_config": {"quant_method": "awq", "bits": 4}},
            "UnsupportedQuantization",
            "awq",
            id="a quantised checkpoint",
        ),
        pytest.param({"hidden_act": "gelu"}, "UnsupportedConfig", "gelu", id="an activation"),
        pytest.param({"hidden_size": None}, "BadConfig", "no hidden_size", id="no hidden size"),
        pytest.param({"num_hidden_layers": "two"}, "BadConfig", "'?two", id="a number in words"),
        pytest.param({"num_hidden_layers": True}, "BadConfig", "True", id="a truth for a number"),
        pytest.param({"num_hidden_layers": 0}, "BadConfig", "is 0", id="no layers"),
        pytest.param({"num_hidden_layers": 10**6}, "BadConfig", "1000000", id="a million layers"),
        pytest.param({"num_attention_heads": 3}, "BadConfig", "not divisible", id="odd heads"),
        pytest.param({"num_key_value_heads": 3}, "BadConfig", "not divisible", id="odd KV heads"),
        pytest.param({"rope_scaling": 7}, "BadConfig", "no object", id="rope scaling as a number"),
    ],
)
def test_a_config_that_the_engine_would_run_wrongly_is_refused(
    tmp_path: Path, change: dict[str, Any], reason: str, complaint: str
) -> None:
    write_hf_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(TINY_LLAMA | change))

    with pytest.raises(ModelError, match=complaint) as caught:
        inspect_model(tmp_path)

    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"rope_scaling": None}, id="rope scaling null"),
        pytest.param(
            {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, id="default"
        ),
        pytest.param({"layer_types": ["full_attention"] * 2}, id="full attention in all layers"),
        pytest.param({"sliding_window": 64}, id="a window that Llama does not have"),
        pytest.param({"num_key_value_heads": 2, "head_dim": None}, id="head_dim null"),
    ],
)
def test_a_config_that_only_looks_special_is_taken(tmp_path: Path, change: dict[str, Any]) -> None:
    assert inspect_model(write_hf_model(tmp_path, TINY_LLAMA | change)).config.head_dim == 16


def break_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def nest_config(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000)


def lose_shard(folder: Path) -> None:
    (folder / "model-00002-of-00003.safetensors").unlink()


def point_index_elsewhere(folder: Path) -> None:
    (folder / INDEX_NAME).write_text(json.dumps({"weight_map": {"x": "../../etc/passwd"}}))


def empty_index(folder: Path) -> None:
    (folder / INDEX_NAME).write_text("{}")


def cut_data(folder: Path) -> None:
    shard = folder / "model-00001-of-00003.safetensors"
    with shard.open("r+b") as stream:
        stream.truncate(shard.stat().st_size - 1)


def cut_header(folder: Path) -> None:
    with (folder / "model-00001-of-00003.safetensors").open("r+b") as stream:
        stream.truncate(100)


def empty_shard(folder: Path) -> None:
    (folder / "model-00001-of-00003.safetensors").write_bytes(b"")


def claim_huge_header(folder: Path) -> None:
    with (folder / "model-00001-of-00003.safetensors").open("r+b") as stream:
        stream.write(struct.pack("<Q", 2**63))


def write_one(folder: Path, entry: dict[str, Any]) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "t": entry})
    data = struct.pack("<Q", len(header)) + header.encode() + bytes(64)
    (folder / "model-00001-of-00003.safetensors").write_bytes(data)


def contradict_size(folder: Path) -> None:
    write_one(folder, {"dtype": "F32", "shape": [3], "data_offsets": [8, 16]})


def overlap(folder: Path) -> None:
    write_one(folder, {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]})


def name_unknown_dtype(folder: Path) -> None:
    write_one(folder, {"dtype": "F12", "shape": [2], "data_offsets": [8, 16]})


def have_negative_shape(folder: Path) -> None:
    write_one(folder, {"dtype": "F32", "shape": [-1, -2], "data_offsets": [8, 16]})


def have_no_shape(folder: Path) -> None:
    write_one(folder, {"dtype": "F32"})


@pytest.mark.parametrize(
    ("damage", "reason", "complaint"),
    [
        pytest.param(break_config, "BadConfig", "config.json is not JSON", id="config.json broken"),
        pytest.param(nest_config, "BadConfig", "nests too deeply", id="config.json nested"),
        pytest.param(lose_shard, "IncompleteModel", "1 of the 3 shards", id="a shard is missing"),
        pytest.param(
            point_index_elsewhere, "IncompleteModel", "etc/passwd", id="an index that points away"
        ),
        pytest.param(empty_index, "BadSafetensors", "weight_map", id="an index that names none"),
        pytest.param(cut_data, "BadSafetensors", "cut short", id="data cut short"),
        pytest.param(cut_header, "BadSafetensors", "states a header", id="a header cut short"),
        pytest.param(empty_shard, "BadSafetensors", "no header", id="an empty shard"),
        pytest.param(
            claim_huge_header, "BadSafetensors", "9223372036854775808", id="a huge header"
        ),
        pytest.param(contradict_size, "BadSafetensors", "contradicts", id="a wrong size"),
        pytest.param(overlap, "BadSafetensors", "overlap", id="overlapping tensors"),
        pytest.param(name_unknown_dtype, "BadSafetensors", "'t'", id="an unknown dtype"),
        pytest.param(have_negative_shape, "BadSafetensors", "'t'", id="a negative shape"),
        pytest.param(have_no_shape, "BadSafetensors", "'t'", id="an entry without a shape"),
    ],
)
def test_damaged_folders_are_refused_with_the_cause(
    tmp_path: Path, damage: Any, reason: str, complaint: str
) -> None:
    damage(write_hf_model(tmp_path, num_shards=3))

    with pytest.raises(ModelError, match=complaint) as caught:
        inspect_model(tmp_path)

    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("change", "dtype", "reason", "complaint"),
    [
        pytest.param(
            {"model.layers.1.mlp.up_proj.weight": None},
            "BF16",
            "IncompleteModel",
            "lacks 1 of the 21 tensors .* model.layers.1.mlp.up_proj.weight",
            id="a tensor is missing",
        ),
        pytest.param(
            {"model.layers.0.self_attn.q_norm.weight": (16,)},
            "BF16",
            "UnsupportedConfig",
            "q_norm",
            id="a tensor is too many",
        ),
        pytest.param(
            {"model.embed_tokens.weight": (99, 64)},
            "BF16",
            "BadConfig",
            r"\[99, 64\], but by the config it should have \[100, 64\]",
            id="a shape contradicts the config",
        ),
        pytest.param({}, "F8_E4M3", "UnsupportedDtype", "F8_E4M3", id="eight-bit floats"),
    ],
)
def test_tensors_that_are_not_the_configs_are_refused(
    tmp_path: Path, change: dict[str, Any], dtype: str, reason: str, complaint: str
) -> None:
    write_hf_model(tmp_path)
    shapes = {n: s for n, s in (llama_shapes(TINY_LLAMA) | change).items() if s is not None}
    write_safetensors(tmp_path / "model.safetensors", shapes, dtype)

    with pytest.raises(ModelError, match=complaint) as caught:
        inspect_model(tmp_path)

    assert caught.value.reason == reason


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
    ("change", "reason", "complaint"),
    [
        pytest.param(
            {"general.architecture": "gemma3"}, "UnsupportedArchitecture", "gemma3", id="family"
        ),
        pytest.param({"general.architecture": 7}, "BadConfig", "architecture", id="no family"),
        pytest.param(
            {"llama.expert_count": 8}, "UnsupportedArchitecture", "8 experts", id="experts"
        ),
        pytest.param(
            {"llama.rope.scaling.type": "yarn"}, "UnsupportedRopeScaling", "yarn", id="rope scaling"
        ),
        pytest.param(
            {"llama.rope.scale_linear": 4.0}, "UnsupportedRopeScaling", "linear", id="old scaling"
        ),
        pytest.param(
            {"llama.attention.sliding_window": 4096},
            "UnsupportedSlidingWindow",
            "4096",
            id="window",
        ),
        pytest.param(
            {"llama.rope.dimension_count": 8}, "UnsupportedConfig", "is 8", id="partial rotation"
        ),
        pytest.param(
            {"llama.attention.head_count": [4, 2]}, "BadConfig", r"\[4, 2\]", id="uneven layers"
        ),
        pytest.param({"llama.block_count": 0}, "BadConfig", "is 0", id="no layers"),
    ],
)
def test_a_gguf_that_the_engine_would_run_wrongly_is_refused(
    tmp_path: Path, change: dict[str, Any], reason: str, complaint: str
) -> None:
    metadata, tensors = tiny_gguf(**change)
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(metadata, tensors))

    with pytest.raises(ModelError, match=complaint) as caught:
        inspect_model(tmp_path)

    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("change", "reason", "complaint"),
    [
        pytest.param(
            {"rope_freqs.weight": ((8,), "F32")},
            "UnsupportedRopeScaling",
            "rope_freqs",
            id="scaling hidden in a tensor",
        ),
        pytest.param(
            {"blk.0.ffn_up.weight": ((96, 256), "Q6_K")},
            "BadConfig",
            "ffn_up",
            id="a shape that contradicts the metadata",
        ),
        pytest.param(
            {"token_embd.weight": None}, "IncompleteModel", "token_embd.weight", id="no embedding"
        ),
    ],
)
def test_a_gguf_with_the_wrong_tensors_is_refused(
    tmp_path: Path, change: dict[str, Any], reason: str, complaint: str
) -> None:
    metadata, tensors = tiny_gguf()
    tensors = {name: entry for name, entry in (tensors | change).items() if entry is not None}
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(metadata, tensors))

    with pytest.raises(ModelError, match=complaint) as caught:
        inspect_model(tmp_path)

    assert caught.value.reason == reason


def test_a_storage_type_that_the_runtime_does_not_read_is_refused_by_name(tmp_path: Path) -> None:
    metadata, tensors = tiny_gguf(
        **{"llama.embedding_length": 256, "llama.rope.dimension_count": 64}
    )
    tensors["token_embd.weight"] = ((100, 256), "Q6_K")
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(metadata, tensors))

    with pytest.raises(ModelError, match="token_embd.weight is stored as Q6_K.*Q4_1") as caught:
        inspect_model(tmp_path)

    assert caught.value.reason == "UnsupportedDtype"


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
