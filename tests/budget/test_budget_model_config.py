"""Configs that the engine would run wrongly are refused by name, in folders and in GGUF files."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_budget.checkpoint import inspect_model
from forebay_budget.families import FAMILIES
from forebay_budget.inspection import ModelError
from forebay_budget.model_config import read_gguf_config, read_hf_config
from forebay_budget.rope import LinearScaling, YarnScaling
from model_files import TINY_LLAMA, gguf_bytes, tiny_gguf, write_hf_model

KEYS = sorted({key for family in FAMILIES.values() for key in family.defaults})
QWEN2 = TINY_LLAMA | {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 512}


@pytest.mark.parametrize(
    ("change", "reason", "complaint"),
    [
        pytest.param(
            {"architectures": ["GPT2LMHeadModel"]},
            "UnsupportedArchitecture",
            "'GPT2LMHeadModel' is not supported; supported are LlamaForCausalLM, "
            "MistralForCausalLM, MixtralForCausalLM, Qwen2ForCausalLM, Qwen2MoeForCausalLM, "
            "Qwen3ForCausalLM, Qwen3MoeForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM, "
            r"Phi3ForCausalLM\.",
            id="an unknown architecture, by name, with the known ones",
        ),
        pytest.param({"architectures": []}, "BadConfig", "no architecture", id="no architecture"),
        pytest.param(
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            "BadConfig",
            "low_freq_factor is None",
            id="rope scaling without its numbers",
        ),
        pytest.param(
            {"rope_scaling": {"type": "proportional", "factor": 2.0}},
            "UnsupportedRopeScaling",
            r"\(proportional\).*it supports .*linear, llama3, yarn",
            id="rope scaling by its old name, of an unknown kind, with the known ones",
        ),
        pytest.param(
            {"rope_parameters": {"rope_type": "linear", "factor": float("inf")}},
            "BadConfig",
            "factor is inf",
            id="an infinite factor",
        ),
        pytest.param(
            {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "mscale": 0.7}},
            "UnsupportedConfig",
            "mscale",
            id="another yarn",
        ),
        pytest.param(
            {"rope_theta": float("inf")}, "BadConfig", "rope_theta is inf", id="infinite theta"
        ),
        pytest.param(
            {"rope_theta": float("nan")}, "BadConfig", "rope_theta is nan", id="theta no number"
        ),
        pytest.param(
            {"rope_parameters": {"rope_theta": float("inf")}},
            "BadConfig",
            "rope_theta is inf",
            id="infinite theta by its new name",
        ),
        pytest.param(
            {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
            "UnsupportedRopeScaling",
            "several rotary embeddings",
            id="several rotary embeddings",
        ),
        pytest.param(
            {"partial_rotary_factor": 0.5}, "UnsupportedConfig", "0.5", id="partial rotation"
        ),
        pytest.param(
            {"architectures": ["Qwen3ForCausalLM"], "layer_types": ["full_attention", "linear"]},
            "UnsupportedConfig",
            "of the type linear",
            id="a type of layer that is not known",
        ),
        pytest.param(
            {"architectures": ["Gemma2ForCausalLM"], "layer_types": ["full_attention"]},
            "BadConfig",
            "do not name its 2 layers",
            id="too few types of layers",
        ),
        pytest.param(
            {"architectures": ["Gemma3ForCausalLM"], "use_bidirectional_attention": True},
            "UnsupportedConfig",
            "use_bidirectional_attention",
            id="attention to what follows",
        ),
        pytest.param(
            {"architectures": ["MixtralForCausalLM"], "num_experts_per_tok": 9},
            "BadConfig",
            "9 of its 8 experts",
            id="more experts a token than there are",
        ),
        pytest.param(
            {"architectures": ["Qwen2MoeForCausalLM"], "mlp_only_layers": "all"},
            "BadConfig",
            "mlp_only_layers",
            id="dense layers in words",
        ),
        pytest.param(
            {"layer_types": ["full_attention", "sliding_attention"]},
            "UnsupportedSlidingWindow",
            "sliding window",
            id="a window in some layers",
        ),
        pytest.param(
            {"quantization_config": {"quant_method": "bitsandbytes"}},
            "UnsupportedQuantization",
            "quantised by bitsandbytes",
            id="a quantised checkpoint of another kind",
        ),
        pytest.param(
            {"rms_norm_eps": "small"}, "BadConfig", "rms_norm_eps is small", id="a word for eps"
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
        pytest.param({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, id="dynamic rope"),
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
    st.sampled_from(sorted(FAMILIES)),
    st.sampled_from(
        [*QWEN2, *KEYS, "rope_scaling", "rope_parameters", "layer_types", "hidden_act"]
    ),
    json_values,
)
def test_no_value_in_a_config_escapes_as_another_error(
    architecture: str, key: str, value: Any
) -> None:
    try:
        read_hf_config(QWEN2 | {"architectures": [architecture], key: value}, "BF16")
    except ModelError as error:
        assert error.message.count("\n") == 0


@pytest.mark.parametrize(
    ("change", "reason", "complaint"),
    [
        pytest.param(
            {"general.architecture": "mamba"},
            "UnsupportedArchitecture",
            "'mamba' is not supported; supported are llama, mistral, qwen2, qwen2moe, qwen3, "
            r"qwen3moe, gemma2, gemma3, phi3\.",
            id="family",
        ),
        pytest.param({"general.architecture": 7}, "BadConfig", "architecture", id="no family"),
        pytest.param(
            {"llama.expert_count": 8, "llama.expert_used_count": 2},
            "IncompleteModel",
            "ffn_gate_inp.weight",
            id="experts that are not there",
        ),
        pytest.param({"llama.rope.freq_base": float("inf")}, "BadConfig", "is inf", id="theta"),
        pytest.param(
            {"llama.rope.scaling.type": "yarn"}, "BadConfig", "factor is None", id="no factor"
        ),
        pytest.param(
            {"llama.rope.scaling.type": "warp"}, "UnsupportedRopeScaling", "warp", id="scaling"
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
            {"rope_freqs.weight": ((7,), "F32")},
            "BadConfig",
            "rope_freqs",
            id="as many factors as there are no frequencies",
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
    metadata, tensors = tiny_gguf()
    tensors["token_embd.weight"] = ((100, 64), "Q8_1")
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(metadata, tensors))

    with pytest.raises(ModelError, match="token_embd.weight is stored as Q8_1.*Q4_1") as caught:
        inspect_model(tmp_path)

    assert caught.value.reason == "UnsupportedDtype"


@pytest.mark.parametrize(
    ("change", "window"),
    [
        pytest.param({"architectures": ["MistralForCausalLM"]}, 4096, id="Mistral names none"),
        pytest.param(
            {"architectures": ["MistralForCausalLM"], "sliding_window": None}, None, id="null"
        ),
        pytest.param(
            {"architectures": ["MistralForCausalLM"], "sliding_window": 12}, 12, id="Mistral"
        ),
        pytest.param({"architectures": ["Phi3ForCausalLM"], "sliding_window": 9}, 9, id="Phi-3"),
        pytest.param({"architectures": ["Gemma2ForCausalLM"]}, None, id="every other layer"),
        pytest.param(
            {"architectures": ["Qwen3ForCausalLM"], "sliding_window": 12}, None, id="not in use"
        ),
        pytest.param(
            {
                "architectures": ["Qwen3ForCausalLM"],
                "sliding_window": 12,
                "use_sliding_window": True,
                "max_window_layers": 0,
            },
            12,
            id="in use in all layers",
        ),
    ],
)
def test_a_window_bounds_memory_only_where_every_layer_has_it(
    change: dict[str, Any], window: int | None
) -> None:
    assert read_hf_config(TINY_LLAMA | change, "BF16").sizes.window == window


def test_gemma3_says_which_layers_see_how_far_and_by_which_rotation() -> None:
    document = TINY_LLAMA | {
        "architectures": ["Gemma3ForCausalLM"],
        "num_hidden_layers": 7,
        "sliding_window": 512,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    layers = read_hf_config(document, "BF16").layers
    assert [layer.window for layer in layers] == [512] * 5 + [None, 512]
    assert {(layer.rope.theta, layer.rope.scaling) for layer in layers} == {
        (1e4, None),
        (1e6, LinearScaling(8.0)),
    }


@pytest.mark.parametrize(
    ("kind", "num_layers", "scalar"),
    [
        pytest.param("gemma2", 2, 16, id="gemma2, by its heads"),
        pytest.param("gemma2", 46, 12, id="gemma2 27B, by h / H"),
        pytest.param("gemma3", 46, 16, id="gemma3, by its heads"),
        pytest.param("gemma3", 62, 12, id="gemma3 27B, by h / H"),
    ],
)
def test_a_gguf_of_gemma_is_scaled_as_its_size_asks(
    kind: str, num_layers: int, scalar: int
) -> None:
    metadata = {
        "general.architecture": kind,
        f"{kind}.block_count": num_layers,
        f"{kind}.context_length": 512,
        f"{kind}.embedding_length": 48,
        f"{kind}.feed_forward_length": 96,
        f"{kind}.attention.head_count": 4,
        f"{kind}.attention.head_count_kv": 2,
        f"{kind}.attention.key_length": 16,
        f"{kind}.attention.sliding_window": 8,
    }
    blueprint = read_gguf_config(metadata, [], 100, False, "Q4_K")
    assert blueprint.attention_scale == pytest.approx(scalar**-0.5)
    assert {layer.window for layer in blueprint.layers} == {8, None}


@pytest.mark.parametrize(
    ("scaling", "num_positions"),
    [
        pytest.param(
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
            2_048,
            id="yarn, the config's length is the original one",
        ),
        pytest.param(
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
            512,
            id="yarn, the config's length is stretched already",
        ),
        pytest.param({"type": "yarn", "factor": 2.0}, 1_024, id="yarn that names no original"),
        pytest.param({"type": "linear", "factor": 4.0}, 2_048, id="linear"),
        pytest.param({"type": "dynamic", "factor": 4.0}, 512, id="dynamic"),
        pytest.param(
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 512,
            },
            512,
            id="llama3",
        ),
    ],
)
def test_a_stretched_embedding_reaches_as_far_as_it_is_stretched(
    scaling: dict[str, Any], num_positions: int
) -> None:
    blueprint = read_hf_config(TINY_LLAMA | {"rope_scaling": scaling}, "BF16")
    assert blueprint.sizes.max_position_embeddings == num_positions


def test_where_one_embedding_of_several_is_not_stretched_the_stated_length_holds() -> None:
    document = TINY_LLAMA | {
        "architectures": ["Gemma3ForCausalLM"],
        "num_hidden_layers": 7,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    assert read_hf_config(document, "BF16").sizes.max_position_embeddings == 512


def test_a_factor_beyond_all_sense_is_refused() -> None:
    with pytest.raises(ModelError, match="number of positions .* no usable number"):
        read_hf_config(TINY_LLAMA | {"rope_scaling": {"type": "linear", "factor": 1e30}}, "BF16")


@pytest.mark.parametrize(
    ("stated", "attention_factor"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"attention_factor": 0.7}, 0.7, id="as it is"),
        pytest.param(
            {"attn_factor": 0.8782488562869419}, pytest.approx(1.0), id="a multiple of the usual"
        ),
        pytest.param({"attn_factor": 0.5, "attention_factor": 0.7}, 0.7, id="both"),
    ],
)
def test_what_yarn_multiplies_by(stated: dict[str, float], attention_factor: float | None) -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, **stated}
    [layer, *_] = read_hf_config(TINY_LLAMA | {"rope_scaling": scaling}, "BF16").layers
    assert isinstance(layer.rope.scaling, YarnScaling)
    assert layer.rope.scaling.attention_factor == attention_factor
