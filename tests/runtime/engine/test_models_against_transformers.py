"""Every family's logits are transformers', from safetensors and from GGUF, prefilled or decoded."""

from pathlib import Path
from typing import Any

import gguf
import pytest
import torch

from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.engine import Engine
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.scheduler import Batch, Chunk
from tiny_model import build_tiny, reference_logits, save_gguf, save_tiny

PROMPT = [(7 * place + 3) % 131 for place in range(37)]


def load(path: Path, **flags: Any) -> Engine:
    flags = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 128, **flags}
    return build_engine(EngineConfig(path, device="cpu", dtype="float32", block_size=8, **flags))


def logits_in_chunks(engine: Engine, token_ids: list[int], ends: list[int]) -> torch.Tensor:
    """The logits after each chunk, through the runner and its paged cache."""
    request = Request("a", token_ids, SamplingParams(max_tokens=1))
    # Blocks in no particular order: attention must go by the table.
    request.block_ids = [5, 2, 7, 1, 4]
    rows, start = [], 0
    for end in ends:
        chunk = Chunk(request, start, end - start, catches_up=True)
        rows.append(engine.runner.run(Batch((chunk,))))
        start = end
    return torch.cat(rows)


def assert_same_as_transformers(path: Path, model: Any) -> None:
    ends = [16, 29, *range(30, 38)]
    logits = logits_in_chunks(load(path), PROMPT, ends)
    expected = reference_logits(model, PROMPT)[[end - 1 for end in ends]]
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


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
        pytest.param("mistral", {}, id="mistral"),
        pytest.param("qwen2", {"head_dim": 16}, id="qwen2"),
        pytest.param("qwen2", {"head_dim": 16, "tie_word_embeddings": True}, id="qwen2-tied"),
    ],
)
def test_logits_from_safetensors(family: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    assert_same_as_transformers(tmp_path, save_tiny(tmp_path, family, **sizes))


def test_logits_from_several_shards(tmp_path: Path) -> None:
    model = build_tiny()
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert_same_as_transformers(tmp_path, model)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_logits_from_gguf(kind: str, tmp_path: Path) -> None:
    model = build_tiny()
    save_gguf(tmp_path / "tiny.gguf", model, gguf.GGMLQuantizationType[kind])
    assert_same_as_transformers(tmp_path, model)


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        pytest.param("llama", {"tie_word_embeddings": True}, id="llama-tied"),
        pytest.param("llama", {"attention_bias": True}, id="llama-biases"),
        pytest.param("qwen2", {"head_dim": 16}, id="qwen2"),
    ],
)
def test_logits_from_gguf_of_other_kinds(
    family: str, sizes: dict[str, Any], tmp_path: Path
) -> None:
    model = build_tiny(family, **sizes)
    save_gguf(tmp_path / "tiny.gguf", model, gguf.GGMLQuantizationType.Q8_0)
    assert_same_as_transformers(tmp_path, model)
