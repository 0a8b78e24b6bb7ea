"""Quantised checkpoints by their headers: what is read, what is counted, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forebay_budget.checkpoint import inspect_model
from forebay_budget.inspection import PACKED_DTYPE, Inspection, ModelError
from forebay_budget.packing import Packing, read_packing
from forebay_budget.report import to_text
from forebay_budget.sizing import Demand, Fit, Misfit, size
from forebay_budget.terms import GIB, admissible_tensor_parallel_sizes, weights_bytes
from model_files import TINY_LLAMA, llama_shapes, write_safetensors

AWQ: dict[str, Any] = {
    "quant_method": "awq",
    "bits": 4,
    "group_size": 128,
    "version": "gemm",
    "zero_point": True,
    "modules_to_not_convert": None,
}
GPTQ: dict[str, Any] = {
    "quant_method": "gptq",
    "bits": 4,
    "group_size": 128,
    "desc_act": False,
    "sym": True,
    "damp_percent": 0.01,
    "true_sequential": True,
}
INT8_ACTIVATIONS = {
    "num_bits": 8,
    "type": "int",
    "strategy": "token",
    "dynamic": True,
    "symmetric": True,
}


def compressed(form: str = "pack-quantized", activations: Any = None, **weights: Any) -> Any:
    scheme = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128} | weights
    group = {"targets": ["Linear"], "weights": scheme, "input_activations": activations}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "sparsity_config": {"format": "dense"},
    }


INT8 = {"num_bits": 8, "strategy": "channel", "group_size": None, "symmetric": True}
W8A8 = compressed("int-quantized", INT8_ACTIVATIONS, **INT8)


@pytest.mark.parametrize(
    ("stated", "packing"),
    [
        pytest.param(AWQ, Packing("awq", "awq", 4, 128, True), id="awq"),
        pytest.param(
            {"quant_method": "awq", "group_size": 64, "version": "GEMM"},
            Packing("awq", "awq", 4, 64, True),
            id="awq that says little",
        ),
        pytest.param(GPTQ, Packing("gptq", "gptq", 4, 128, False, 1), id="gptq"),
        pytest.param(
            GPTQ | {"bits": 8, "group_size": -1, "desc_act": True, "sym": False},
            Packing("gptq", "gptq", 8, 0, True, 1, is_reordered=True),
            id="gptq of rows, in order of activations, with zeros",
        ),
        pytest.param(
            GPTQ | {"checkpoint_format": "gptq_v2", "dynamic": {"-:.*down_proj.*": {}}},
            Packing("gptq", "gptq", 4, 128, False, 0),
            id="gptq's second format, with layers skipped",
        ),
        pytest.param(
            compressed(symmetric=False, group_size=32, actorder="group"),
            Packing("compressed-tensors", "packed", 4, 32, True, 0, is_reordered=True),
            id="packed",
        ),
        pytest.param(
            compressed(**INT8, actorder="weight"),
            Packing("compressed-tensors", "packed", 8, 0, False),
            id="packed rows of bytes",
        ),
        pytest.param(
            W8A8,
            Packing("compressed-tensors", "int8", 8, 0, False, quantizes_activations=True),
            id="bytes for weights and activations",
        ),
        pytest.param(
            compressed("int-quantized", **INT8),
            Packing("compressed-tensors", "int8", 8, 0, False),
            id="bytes for weights alone",
        ),
        pytest.param(None, None, id="plain"),
    ],
)
def test_a_quantization_config_is_read(stated: Any, packing: Packing | None) -> None:
    assert read_packing(stated) == packing


@pytest.mark.parametrize(
    ("stated", "sentence"),
    [
        pytest.param({"quant_method": "fp8"}, r"quantised by fp8 .*it reads awq \(gemm", id="fp8"),
        pytest.param({}, "quantised by None", id="by nothing"),
        pytest.param(AWQ | {"version": "gemv"}, "version is gemv; .* gemm only", id="awq gemv"),
        pytest.param(AWQ | {"bits": 3}, "bits is 3; the runtime supports 4 only", id="awq bits"),
        pytest.param(AWQ | {"zero_point": False}, "zero_point is False", id="awq without zeros"),
        pytest.param(GPTQ | {"bits": 3}, "bits is 3; .* 4 or 8 only", id="gptq bits"),
        pytest.param(GPTQ | {"bits": "4"}, "bits is 4; .* 4 or 8 only", id="bits in words"),
        pytest.param(GPTQ | {"bits": True}, "bits is True", id="bits as a truth"),
        pytest.param(
            GPTQ | {"group_size": 1024}, "group_size is 1024; .*32 or 64 or 128 or -1", id="groups"
        ),
        pytest.param(
            GPTQ | {"checkpoint_format": "marlin"},
            "checkpoint_format is marlin; .* gptq or gptq_v2",
            id="marlin's layout",
        ),
        pytest.param(
            GPTQ | {"dynamic": {"+:.*": {"bits": 8}}}, "dynamic is rules of its own", id="dynamic"
        ),
        pytest.param(compressed("float-quantized"), "format is float-quantized", id="float8"),
        pytest.param(compressed("nvfp4-pack-quantized"), "format is nvfp4", id="fp4"),
        pytest.param(compressed(type="float"), "weights.type is float", id="floats"),
        pytest.param(compressed(num_bits=2), "weights.num_bits is 2", id="two bits"),
        pytest.param(compressed(strategy="tensor"), "weights.strategy is tensor", id="tensor"),
        pytest.param(
            compressed("int-quantized", INT8_ACTIVATIONS | {"dynamic": False}, **INT8),
            "input_activations.dynamic is False; .* True only",
            id="static activations",
        ),
        pytest.param(
            compressed("int-quantized", **INT8 | {"symmetric": False}),
            "weights.symmetric is False",
            id="bytes with zeros",
        ),
        pytest.param(
            compressed(activations=INT8_ACTIVATIONS),
            "input_activations is set; .* none beside such weights",
            id="four bits times eight",
        ),
        pytest.param(
            W8A8 | {"kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme is set", id="kv"
        ),
        pytest.param(
            W8A8 | {"sparsity_config": {"format": "sparse-24-bitmask"}},
            "sparsity_config.format is sparse-24-bitmask; .* dense only",
            id="sparse",
        ),
        pytest.param(
            W8A8
            | {"config_groups": {n: {"weights": {"num_bits": n}, "format": "x"} for n in (4, 8)}},
            "config_groups is several schemes",
            id="several schemes",
        ),
    ],
)
def test_what_would_be_run_wrongly_is_refused_by_its_field(
    stated: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ModelError, match=sentence) as caught:
        read_packing(stated)

    assert caught.value.reason == "UnsupportedQuantization"
    assert caught.value.message.count(". ") == 0


def pack_names(
    shapes: dict[str, tuple[int, ...]], packed: Any, skipped: tuple[str, ...] = ()
) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """A plain model's tensors with each layer's matrices replaced by packed(rows, columns)."""
    out, dtypes = {}, {}
    for name, shape in shapes.items():
        module = name.removesuffix(".weight")
        is_matrix = ".layers." in name and len(shape) == 2
        if not is_matrix or module.endswith(skipped or ("-",)):
            out[name], dtypes[name] = shape, "F16"
            continue
        for ending, (own_shape, dtype) in packed(*shape).items():
            out[f"{module}.{ending}"], dtypes[f"{module}.{ending}"] = own_shape, dtype
    return out, dtypes


def awq(rows: int, columns: int) -> dict[str, tuple[tuple[int, ...], str]]:
    return {
        "qweight": ((columns, rows // 8), "I32"),
        "qzeros": ((columns // 32, rows // 8), "I32"),
        "scales": ((columns // 32, rows), "F16"),
    }


def gptq8(rows: int, columns: int) -> dict[str, tuple[tuple[int, ...], str]]:
    return {
        "qweight": ((columns // 4, rows), "I32"),
        "qzeros": ((1, rows // 4), "I32"),
        "scales": ((1, rows), "F16"),
        "g_idx": ((columns,), "I32"),
        "bias": ((rows,), "F16"),
    }


def packed4(rows: int, columns: int) -> dict[str, tuple[tuple[int, ...], str]]:
    return {
        "weight_packed": ((rows, columns // 8), "I32"),
        "weight_scale": ((rows, columns // 32), "BF16"),
        "weight_zero_point": ((rows // 8, columns // 32), "I32"),
        "weight_shape": ((2,), "I64"),
    }


def int8(rows: int, columns: int) -> dict[str, tuple[tuple[int, ...], str]]:
    return {"weight": ((rows, columns), "I8"), "weight_scale": ((rows, 1), "BF16")}


SHARDED = 2 * 30_720
FORMATS = {
    "awq": (AWQ | {"group_size": 32}, awq, SHARDED * (16 + 3) // 32),
    "gptq": (GPTQ | {"bits": 8, "group_size": -1}, gptq8, SHARDED * (64 + 2) // 64),
    "packed": (
        compressed(group_size=32, symmetric=False),
        packed4,
        SHARDED * (16 + 3) // 32,
    ),
    "w8a8": (W8A8, int8, SHARDED * (64 + 2) // 64),
}


def write(folder: Path, form: str, skipped: tuple[str, ...] = (), **config: Any) -> Path:
    stated, packed, _ = FORMATS[form]
    document = TINY_LLAMA | {"quantization_config": stated} | config
    (folder / "config.json").write_text(json.dumps(document))
    shapes, dtypes = pack_names(llama_shapes(document), packed, skipped)
    write_safetensors(folder / "model.safetensors", shapes, dtypes)
    return folder


@pytest.mark.parametrize("form", FORMATS)
def test_packed_matrices_are_counted_as_they_are_served(tmp_path: Path, form: str) -> None:
    inspection = inspect_model(write(tmp_path, form))
    packed = [g for g in inspection.weights if g.dtype == PACKED_DTYPE and g.kind == "sharded"]

    assert [group.num_elements for group in packed] == [SHARDED]
    assert inspection.quantization == str(read_packing(FORMATS[form][0]))
    vectors = sum(g.num_elements for g in inspection.weights if g.kind == "replicated")
    assert weights_bytes(inspection, 1, "float16") == FORMATS[form][2] + 2 * (
        vectors + 2 * 128 * 64
    )
    assert Inspection.from_json(inspection.to_json()) == inspection


def test_skipped_matrices_count_as_plain_ones(tmp_path: Path) -> None:
    inspection = inspect_model(write(tmp_path, "awq", skipped=("down_proj",)))
    sharded = {g.dtype: g.num_elements for g in inspection.weights if g.kind == "sharded"}

    assert sharded == {PACKED_DTYPE: SHARDED - 2 * 96 * 64, "F16": 2 * 96 * 64}
    assert (
        weights_bytes(inspection, 1, "float16")
        == sharded[PACKED_DTYPE] * 19 // 32 + (sharded["F16"] + 5 * 64 + 2 * 128 * 64) * 2
    )


def test_ranks_share_whole_groups(tmp_path: Path) -> None:
    config = inspect_model(
        write(tmp_path, "awq", num_key_value_heads=4, intermediate_size=96)
    ).config

    assert admissible_tensor_parallel_sizes(config, "None") == [1]
    ordered = replace(config, is_weight_reordered=True)
    assert admissible_tensor_parallel_sizes(ordered, "None") == [1, 2, 4]
    assert admissible_tensor_parallel_sizes(replace(config, weight_bits=0), "None") == [1, 2, 4]
    assert admissible_tensor_parallel_sizes(replace(config, weight_bits=0), "INT8") == [1]


def test_inputs_in_no_order_are_filled_up_where_ranks_share_them(tmp_path: Path) -> None:
    inspection = inspect_model(write(tmp_path, "awq", num_key_value_heads=4))
    config = inspection.config
    ordered = replace(inspection, config=replace(config, is_weight_reordered=True))

    assert weights_bytes(ordered, 1, "float16") == weights_bytes(inspection, 1, "float16")
    assert weights_bytes(ordered, 2, "float16") > weights_bytes(inspection, 2, "float16")


@pytest.mark.parametrize(
    ("form", "config", "sentence"),
    [
        pytest.param(
            "awq",
            {"quantization_config": AWQ | {"group_size": 64}},
            r"layers\.0\.mlp\.down_proj has 96 inputs, no whole number of .* groups of 64",
            id="groups that do not divide",
        ),
        pytest.param(
            "gptq",
            {"quantization_config": GPTQ | {"group_size": 32}},
            r"qweight has the shape \[16, 64\], but by the config it should have \[8, 64\]",
            id="other bits than the config's",
        ),
        pytest.param(
            "awq",
            {"quantization_config": GPTQ | {"group_size": 32}},
            r"qweight has the shape",
            id="awq that calls itself gptq",
        ),
        pytest.param(
            "packed",
            {"quantization_config": AWQ | {"group_size": 32}},
            r"lacks 42 of .* the first is model\.layers\.0\.self_attn\.q_proj\.qweight",
            id="another method's tensors",
        ),
        pytest.param(
            "awq",
            {"quantization_config": None},
            r"lacks 14 of .* the first is model\.layers\.0\.self_attn\.q_proj\.weight",
            id="packed, and no word of it",
        ),
    ],
)
def test_files_that_contradict_their_config_are_refused(
    tmp_path: Path, form: str, config: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ModelError, match=sentence):
        inspect_model(write(tmp_path, form, **config))


def test_a_packed_head_is_refused_by_its_name(tmp_path: Path) -> None:
    write(tmp_path, "awq")
    shapes, dtypes = pack_names(llama_shapes(TINY_LLAMA), awq)
    head = {f"lm_head.{ending}": value for ending, value in awq(104, 64).items()}
    shapes |= {name: shape for name, (shape, _) in head.items()}
    dtypes |= {name: dtype for name, (_, dtype) in head.items()}
    write_safetensors(tmp_path / "model.safetensors", {**shapes}, dtypes)
    del shapes["lm_head.weight"]
    write_safetensors(tmp_path / "model.safetensors", shapes, dtypes)

    with pytest.raises(ModelError, match="lm_head is packed; .* embeddings and heads plain"):
        inspect_model(tmp_path)


def test_no_second_rounding_is_planned(tmp_path: Path) -> None:
    inspection = inspect_model(write(tmp_path, "awq"))
    for asked in ("Auto", "None", "INT4"):
        fit = size(inspection, Demand("CPU", quantization=asked))
        assert isinstance(fit, Fit)
        assert fit.quantization == "None"
    misfit = size(inspection, Demand("CPU", quantization="INT8"))
    assert isinstance(misfit, Misfit)
    assert "model.quantization is INT8, but the checkpoint's weights are quantised to 4 bits" in (
        misfit.message
    )


def test_the_report_says_how_the_checkpoint_is_quantised(tmp_path: Path) -> None:
    inspection = inspect_model(write(tmp_path, "gptq"))
    demand = Demand("GPU", 24 * GIB)
    answer = size(inspection, demand)
    assert isinstance(answer, Fit)
    text = to_text(inspection, demand, answer)
    assert "on disk (gptq, 8 bits, one scale a row, safetensors)" in text
    assert (
        "number format       bfloat16, weights as stored (gptq, 8 bits, one scale a row); " in text
    )
    assert "of weights as stored, in 8 bits, " in answer.explanation
