"""A GGUF's matrices are read as the codes that they are, in the places that Hugging Face has."""

from pathlib import Path

import gguf
import pytest
import torch

from forebay_kernels.code_matrix import CodeMatrix
from forebay_runtime.loading.checkpoint import open_checkpoint
from forebay_runtime.loading.cut import ALL
from forebay_runtime.loading.description import describe_model
from forebay_runtime.loading.gguf_file import GgufCheckpoint
from tiny_model import build_tiny, save_gguf


def open_tiny(folder: Path, kind: str, family: str = "llama") -> GgufCheckpoint:
    save_gguf(folder / "m.gguf", build_tiny(family), gguf.GGMLQuantizationType[kind])
    described = describe_model(folder)
    checkpoint = open_checkpoint(described.path, described.blueprint)
    assert isinstance(checkpoint, GgufCheckpoint)
    return checkpoint


@pytest.mark.parametrize(
    ("name", "rows", "columns"),
    [
        pytest.param("model.layers.0.mlp.down_proj.weight", ALL, ALL, id="a whole matrix"),
        pytest.param("model.layers.1.self_attn.q_proj.weight", ALL, ALL, id="paired heads"),
        pytest.param(
            "model.layers.1.self_attn.q_proj.weight", slice(32, 64), ALL, id="one of the heads"
        ),
        pytest.param("model.layers.0.mlp.up_proj.weight", slice(3, 70), ALL, id="some outputs"),
        pytest.param(
            "model.layers.0.mlp.down_proj.weight", ALL, slice(64, 160), id="some inputs, in groups"
        ),
    ],
)
def test_codes_of_a_part_stand_for_what_is_dequantised(
    tmp_path: Path, name: str, rows: slice, columns: slice
) -> None:
    checkpoint = open_tiny(tmp_path, "Q5_1")
    matrix = checkpoint.read_codes(name, rows, columns)
    expected = torch.empty(matrix.codes.shape)
    checkpoint.read_into(name, expected, rows, columns)

    assert isinstance(matrix, CodeMatrix)
    assert torch.equal(matrix.dequantised(), expected)


@pytest.mark.parametrize(
    ("kind", "name", "has_codes"),
    [
        pytest.param("Q4_0", "model.layers.0.mlp.up_proj.weight", True, id="a matrix"),
        pytest.param("Q4_0", "model.embed_tokens.weight", True, id="the embedding"),
        pytest.param("Q4_0", "model.norm.weight", False, id="a vector"),
        pytest.param("Q4_0", "model.layers.9.mlp.up_proj.weight", False, id="nothing"),
        pytest.param("F16", "model.layers.0.mlp.up_proj.weight", False, id="floats"),
    ],
)
def test_only_quantised_matrices_have_codes(
    tmp_path: Path, kind: str, name: str, has_codes: bool
) -> None:
    assert open_tiny(tmp_path, kind).has_codes(name) == has_codes


def test_each_expert_of_a_mixture_has_its_own_codes(tmp_path: Path) -> None:
    checkpoint = open_tiny(tmp_path, "Q8_0", "mixtral")
    name = "model.layers.0.block_sparse_moe.experts.3.w1.weight"
    matrix = checkpoint.read_codes(name)
    expected = torch.empty(matrix.codes.shape)
    checkpoint.read_into(name, expected)

    assert torch.equal(matrix.dequantised(), expected)
