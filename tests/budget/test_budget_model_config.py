"""Configs that the engine would run wrongly are refused by name, in folders and in GGUF files."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_budget.checkpoint import inspect_model
from forebay_budget.inspection import ModelError
from forebay_budget.model_config import read_hf_config
from model_files import TINY_LLAMA, gguf_bytes, tiny_gguf, write_hf_model

QWEN2 = TINY_LLAMA | {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 512}


@pytest.mark.parametrize(
    ("change", "reason", "complaint"),
    [
        pytest.param(
            {"architectures": ["GPT2LMHeadModel"]},
            "UnsupportedArchitecture",
            "'GPT2LMHeadModel' is not supported; supported are LlamaForCausalLM, "
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


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.sampled_from([*QWEN2, "rope_scaling", "rope_parameters", "layer_types", "hidden_act"]),
    json_values,
)
def test_no_value_in_a_config_escapes_as_another_error(key: str, value: Any) -> None:
    try:
        read_hf_config(QWEN2 | {key: value}, "BF16")
    except ModelError as error:
        assert error.message.count("\n") == 0


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
