"""Every family's logits are transformers', from safetensors and from GGUF, prefilled or decoded."""

from array import array
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch

from forebay_kernels.cpu.score_rows import to_tensor
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.engine import Engine
from forebay_runtime.loading.description import describe_model
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.scheduling.batch import Batch, Chunk
from tiny_model import FAMILIES, build_tiny, reference_logits, save_gguf, save_tiny

PROMPT = [(7 * place + 3) % 131 for place in range(37)]
BLOCK_SIZE = 8
POISONED = 6


def load(path: Path, **flags: Any) -> Engine:
    flags = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 128, **flags}
    config = EngineConfig(path, device="cpu", dtype="float32", block_size=BLOCK_SIZE, **flags)
    return build_engine(config)


def logits_in_chunks(engine: Engine, token_ids: list[int], ends: list[int]) -> torch.Tensor:
    """The logits after each chunk, through the runner and its paged cache.

    Blocks that fell out of a model's window are given up before each chunk.
    """
    runner = engine.runner
    request = Request("a", token_ids, SamplingParams(max_tokens=1))
    # Blocks in no particular order: attention must go by the table.
    request.block_ids = array("i", [5, 2, 7, 1, 4])
    for layer in runner.cache.layers:
        layer.k[POISONED] = layer.v[POISONED] = float("nan")
    rows, start = [], 0
    for end in ends:
        if runner.model.window is not None:
            num_gone = max(0, start - runner.model.window + 1) // BLOCK_SIZE
            request.block_ids[:num_gone] = array("i", [POISONED] * num_gone)
        chunk = Chunk(request, start, end - start, catches_up=True)
        rows.append(to_tensor(runner.run(Batch((chunk,))).logits).clone())
        start = end
    return torch.cat(rows)


def assert_same_as_transformers(path: Path, model: Any) -> None:
    ends = [16, 29, *range(30, 38)]
    logits = logits_in_chunks(load(path), PROMPT, ends)
    expected = reference_logits(model, PROMPT)[[end - 1 for end in ends]]
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}


PARTIAL = {
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.75,
    }
}
SCALED_GEMMA3 = {
    "tie_word_embeddings": True,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}


def long_rope(num_factors: int, original: int) -> dict[str, Any]:
    return {
        "max_position_embeddings": 128,
        "original_max_position_embeddings": original,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": [1.0 + place / 10 for place in range(num_factors)],
            "long_factor": [2.0 + place for place in range(num_factors)],
        },
    }


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        pytest.param("llama", {}, id="llama"),
        pytest.param("llama", {"tie_word_embeddings": True}, id="llama-tied"),
        pytest.param("llama", {"num_key_value_heads": 6}, id="llama-as-many-kv-heads"),
        pytest.param("llama", {"num_key_value_heads": 1}, id="llama-one-kv-head"),
        pytest.param(
            "llama",
            {"hidden_size": 112, "num_attention_heads": 7, "num_key_value_heads": 7},
            id="llama-seven-heads",
        ),
        pytest.param("llama", {"attention_bias": True, "mlp_bias": True}, id="llama-biases"),
        pytest.param("llama", {"head_dim": None, "num_attention_heads": 3}, id="llama-head-h/H"),
        pytest.param(
            "llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, id="theta"
        ),
        pytest.param("llama", {"rope_parameters": LLAMA3}, id="llama3-rope"),
        pytest.param("llama", {"rope_parameters": LINEAR}, id="linear-rope"),
        pytest.param("llama", {"rope_parameters": YARN}, id="yarn-rope"),
        pytest.param(
            "llama",
            {"rope_parameters": YARN | {"attention_factor": 0.7, "truncate": False}},
            id="yarn-rope-in-full",
        ),
        pytest.param(
            "llama",
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            id="dynamic-rope",
        ),
        pytest.param("mistral", {}, id="mistral"),
        pytest.param("mistral", {"sliding_window": 12}, id="mistral-window"),
        pytest.param("mistral", {"sliding_window": 1}, id="mistral-window-of-one"),
        pytest.param("mixtral", {}, id="mixtral"),
        pytest.param("mixtral", {"sliding_window": 9}, id="mixtral-window"),
        pytest.param(
            "mixtral", {"num_experts_per_tok": 1, "num_local_experts": 3}, id="mixtral-top-1"
        ),
        pytest.param("mixtral", {"num_experts_per_tok": 5}, id="mixtral-all-experts"),
        pytest.param("qwen2", {}, id="qwen2"),
        pytest.param("qwen2", {"tie_word_embeddings": True}, id="qwen2-tied"),
        pytest.param(
            "qwen2",
            {"use_sliding_window": True, "sliding_window": 10, "max_window_layers": 1},
            id="qwen2-window-in-the-last-layer",
        ),
        pytest.param(
            "qwen2",
            {"use_sliding_window": True, "sliding_window": 10, "max_window_layers": 0},
            id="qwen2-window-in-all-layers",
        ),
        pytest.param("qwen2_moe", {}, id="qwen2-moe"),
        pytest.param(
            "qwen2_moe",
            {"norm_topk_prob": True, "mlp_only_layers": [0], "num_hidden_layers": 3},
            id="qwen2-moe-dense-first",
        ),
        pytest.param("qwen2_moe", {"decoder_sparse_step": 2}, id="qwen2-moe-every-other"),
        pytest.param("qwen3", {}, id="qwen3"),
        pytest.param("qwen3", {"tie_word_embeddings": True}, id="qwen3-tied"),
        pytest.param("qwen3_moe", {}, id="qwen3-moe"),
        pytest.param(
            "qwen3_moe",
            {"norm_topk_prob": False, "use_sliding_window": True, "sliding_window": 7},
            id="qwen3-moe-plain-weights",
        ),
        pytest.param("gemma2", {}, id="gemma2"),
        pytest.param("gemma2", {"tie_word_embeddings": True}, id="gemma2-tied"),
        pytest.param(
            "gemma2",
            {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
            id="gemma2-hard-caps",
        ),
        pytest.param(
            "gemma2",
            {"attn_logit_softcapping": None, "query_pre_attn_scalar": 16},
            id="gemma2-no-cap",
        ),
        pytest.param("gemma3", {}, id="gemma3"),
        pytest.param("gemma3", SCALED_GEMMA3, id="gemma3-scaled"),
        pytest.param(
            "gemma3",
            {
                "num_hidden_layers": 3,
                "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            },
            id="gemma3-types-of-its-own",
        ),
        pytest.param("phi3", {}, id="phi3"),
        pytest.param("phi3", {"sliding_window": 11}, id="phi3-window"),
        pytest.param("phi3", PARTIAL, id="phi3-partial"),
        pytest.param("phi3", long_rope(8, 128), id="phi3-longrope-short"),
        pytest.param("phi3", long_rope(8, 16), id="phi3-longrope-long"),
    ],
)
def test_logits_from_safetensors(family: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    assert_same_as_transformers(tmp_path, save_tiny(tmp_path, family, **sizes))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_has_as_many_parameters_as_transformers_counts(
    family: str, tmp_path: Path
) -> None:
    model = save_tiny(tmp_path, family)
    assert describe_model(tmp_path).inspection.num_parameters == model.num_parameters()


def test_logits_from_several_shards(tmp_path: Path) -> None:
    model = build_tiny()
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert_same_as_transformers(tmp_path, model)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0"])
def test_logits_from_gguf(kind: str, tmp_path: Path) -> None:
    model = build_tiny()
    save_gguf(tmp_path / "tiny.gguf", model, gguf.GGMLQuantizationType[kind])
    assert_same_as_transformers(tmp_path, model)


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        pytest.param("llama", {"tie_word_embeddings": True}, id="llama-tied"),
        pytest.param("llama", {"attention_bias": True}, id="llama-biases"),
        pytest.param("llama", {"rope_parameters": LLAMA3}, id="llama3-rope"),
        pytest.param("llama", {"rope_parameters": LINEAR}, id="linear-rope"),
        pytest.param("mixtral", {}, id="mixtral"),
        pytest.param("qwen2", {}, id="qwen2"),
        pytest.param("qwen2", {"rope_parameters": YARN}, id="yarn-rope"),
        pytest.param("qwen2_moe", {}, id="qwen2-moe"),
        pytest.param("qwen3", {}, id="qwen3"),
        pytest.param("qwen3_moe", {}, id="qwen3-moe"),
        pytest.param("gemma2", {"tie_word_embeddings": True}, id="gemma2"),
        pytest.param("gemma3", {"tie_word_embeddings": True}, id="gemma3"),
        pytest.param("gemma3", SCALED_GEMMA3, id="gemma3-scaled"),
        pytest.param("phi3", {"sliding_window": 11}, id="phi3-window"),
        pytest.param("phi3", PARTIAL, id="phi3-partial"),
        pytest.param("phi3", long_rope(8, 16), id="phi3-longrope-long"),
    ],
)
def test_logits_from_gguf_of_other_kinds(
    family: str, sizes: dict[str, Any], tmp_path: Path
) -> None:
    model = build_tiny(family, **sizes)
    save_gguf(tmp_path / "tiny.gguf", model, gguf.GGMLQuantizationType.Q8_0)
    assert_same_as_transformers(tmp_path, model)
