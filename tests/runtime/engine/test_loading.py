"""A model that cannot be loaded as asked is refused in one sentence that leads to the cause."""

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file

from forebay_budget.inspection import ModelError
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.engine import Engine
from forebay_runtime.loading.checkpoint import open_checkpoint, read_tensor
from forebay_runtime.loading.description import describe_model
from forebay_runtime.loading.end_tokens import folder_end_tokens
from tiny_model import build_tiny, save_gguf


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    save_gguf(path, build_tiny(), gguf.GGMLQuantizationType.Q8_0)
    return path


def copy_with(folder: Path, target: Path, tensors: Any = None, **config: Any) -> Path:
    """The folder again, with changes to its config, and its tensors run through a function."""
    document = json.loads((folder / "config.json").read_text()) | config
    (target / "config.json").write_text(json.dumps(document))
    stored = load_file(folder / "model.safetensors")
    save_file(tensors(stored) if tensors else stored, target / "model.safetensors")
    return target


def without(name: str) -> Any:
    return lambda stored: {key: value for key, value in stored.items() if key != name}


def load(path: Path, **flags: Any) -> Engine:
    return build_engine(EngineConfig(path, device="cpu", dtype="float32", **flags))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        pytest.param(
            {"architectures": ["MambaForCausalLM"]},
            "The architecture .?MambaForCausalLM.? is not supported",
            id="architecture",
        ),
        pytest.param(
            {"rope_parameters": {"rope_type": "proportional", "factor": 4.0}},
            r"scales its rotary embedding \(proportional\)",
            id="rope-scaling",
        ),
        pytest.param(
            {"rope_parameters": {"rope_theta": float("inf")}}, "rope_theta is inf", id="theta"
        ),
        pytest.param(
            {"tensors": without("model.layers.1.mlp.up_proj.weight")},
            r"lacks 1 of .* the first is model\.layers\.1\.mlp\.up_proj\.weight",
            id="missing-tensor",
        ),
        pytest.param(
            {"intermediate_size": 192},
            r"model\.layers\.0\.mlp\.gate_proj\.weight has the shape \[160, 96\], but by the "
            r"config it should have \[192, 96\]",
            id="wrong-shape",
        ),
        pytest.param(
            {"architectures": ["Qwen2ForCausalLM"]},
            r"lacks 6 of .* the first is model\.layers\.0\.self_attn\.q_proj\.bias",
            id="missing-bias",
        ),
        pytest.param(
            {"tensors": lambda stored: {**stored, "model.layers.0.gate.weight": torch.ones(3)}},
            r"1 tensors that LlamaForCausalLM does not use, the first is .model\.layers\.0\.gate",
            id="tensor-that-nobody-uses",
        ),
        pytest.param(
            {"tensors": lambda stored: {name: t.to(torch.int8) for name, t in stored.items()}},
            "is stored as I8, which the runtime does not read",
            id="integers",
        ),
        pytest.param({"rms_norm_eps": "small"}, "rms_norm_eps is small, no usable", id="eps"),
        pytest.param({"eos_token_id": "</s>"}, "eos_token_id is </s>, no token", id="eos"),
    ],
)
def test_a_folder_that_the_runtime_cannot_run_is_refused(
    tiny: Path, tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ModelError, match=sentence):
        load(copy_with(tiny, tmp_path, **changes))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused_by_warm_up(
    tiny: Path, tmp_path: Path, value: float
) -> None:
    def damage(stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        stored["model.layers.1.mlp.up_proj.weight"][3, 5] = value
        return stored

    engine = load(copy_with(tiny, tmp_path, damage), max_num_seqs=2)
    with pytest.raises(StartError, match="NaN or infinite scores"):
        engine.warm_up()


def test_an_unreadable_ggml_type_is_refused_by_the_tensors_name(tmp_path: Path) -> None:
    save_gguf(tmp_path / "tiny.gguf", build_tiny(), gguf.GGMLQuantizationType.MXFP4)
    with pytest.raises(ModelError, match=r"(token_embd|output)\.weight is stored as MXFP4"):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_reading_a_tensor_names_what_is_missing_or_wrong(
    kind: str, tiny: Path, tiny_gguf: Path
) -> None:
    described = describe_model(tiny if kind == "folder" else tiny_gguf)
    checkpoint = open_checkpoint(described.path, described.blueprint)
    names = {"folder": "model.layers.7.mlp.up_proj", "gguf": r"blk\.7\.ffn_up"}
    with pytest.raises(ModelError, match=names[kind]):
        read_tensor(checkpoint, "model.layers.7.mlp.up_proj.weight", torch.empty(1))
    with pytest.raises(ModelError, match=r"\[131, 96\].*should have \[4\]"):
        read_tensor(checkpoint, "model.embed_tokens.weight", torch.empty(4))


def test_a_description_has_what_sizes_do_not_need(tiny: Path, tiny_gguf: Path) -> None:
    for path in (tiny, tiny_gguf):
        described = describe_model(path)
        assert described.blueprint.layers[0].rope.theta == 10_000
        assert described.blueprint.rms_norm_eps == pytest.approx(1e-6)
        assert described.eos_token_ids == {2}


def test_generation_config_says_which_tokens_end(tiny: Path, tmp_path: Path) -> None:
    folder = copy_with(tiny, tmp_path)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 9]}))
    assert describe_model(folder).eos_token_ids == {2, 9}


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        pytest.param(
            {"max_model_len": 257}, "--max-model-len 257 is more than the 256", id="model-len"
        ),
        pytest.param(
            {"max_model_len": 100, "kv_cache_memory_bytes": 100_000},
            "--kv-cache-memory-bytes 100000 holds 64 tokens, too few for one request of 100; "
            "raise it to 172032 or lower --max-model-len",
            id="kv-cache",
        ),
        pytest.param(
            {"kv_cache_memory_bytes": 1_000}, "holds 0 tokens, too few for one", id="no-block"
        ),
    ],
)
def test_flags_that_the_model_contradicts_are_refused(
    tiny: Path, flags: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(StartError, match=sentence):
        load(tiny, **flags)


@pytest.mark.parametrize(
    ("built_for", "sentence"),
    [("12.8", "torch sees no GPU; start it where"), (None, "this torch was built without CUDA")],
    ids=["a driver or a device is missing", "torch cannot"],
)
def test_without_a_gpu_cuda_is_refused(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, built_for: str | None, sentence: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", built_for)
    with pytest.raises(StartError, match=f"--device cuda was asked, but {sentence}"):
        build_engine(EngineConfig(tiny, device="cuda"))


def test_max_model_len_is_what_a_given_cache_holds(tiny: Path) -> None:
    # 2 layers x (K and V) x 3 heads x 32 numbers x 4 bytes = 1,536 bytes a token.
    engine = load(tiny, kv_cache_memory_bytes=1_536 * 16 * 5 + 7)
    assert engine.max_model_len == 80
    assert engine.load_now().free_kv_tokens == 80


def test_by_default_the_cache_holds_a_quarter_of_every_request_or_one_whole(
    tiny: Path,
) -> None:
    assert load(tiny, max_num_seqs=2).load_now().free_kv_tokens == 256
    assert load(tiny, max_num_seqs=8).load_now().free_kv_tokens == 512


@pytest.mark.parametrize("is_file", [False, True], ids=["folder", "gguf"])
def test_a_model_that_went_since_it_was_described_is_named(tmp_path: Path, is_file: bool) -> None:
    path = tmp_path / ("model.gguf" if is_file else "model")
    if is_file:
        save_gguf(path, build_tiny(), gguf.GGMLQuantizationType.F32)
    else:
        build_tiny().save_pretrained(path)
    described = describe_model(path)
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match=rf"{path} cannot be read: No such file or directory"):
        open_checkpoint(path, described.blueprint)
    with pytest.raises(ModelError, match="cannot be read|no file or folder"):
        describe_model(path)


def test_a_folder_that_goes_before_its_end_tokens_are_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="gone cannot be read: No such file or directory"):
        folder_end_tokens(tmp_path / "gone")
