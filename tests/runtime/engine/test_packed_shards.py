"""Ranks read their own parts of packed matrices, which together are the whole."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from forebay_runtime.loading.checkpoint import open_checkpoint
from forebay_runtime.loading.description import describe_model
from forebay_runtime.models.link import Alone
from forebay_runtime.models.matrix_formats import MatrixFormats
from forebay_runtime.models.placement import Placement
from forebay_runtime.models.shard import Block, Shard
from forebay_runtime.models.weights import WeightReader
from packed_models import METHODS, save_packed
from tiny_model import save_tiny

SIZES = {"intermediate_size": 768, "num_key_value_heads": 2, "head_dim": 12}
"""Of 24 and 72 outputs half is no whole number of words; 768 inputs are cut between groups."""
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Rank(Alone):
    """A link that says which part is its own, and reaches nobody."""

    shard: Shard


@dataclass(frozen=True)
class Model:
    """A checkpoint, and how it is to be read."""

    path: Path
    placement: Placement

    def reader(self, rank: int = 0, size: int = 1) -> WeightReader:
        described = describe_model(self.path)
        checkpoint = open_checkpoint(described.path, described.blueprint)
        return WeightReader(
            checkpoint, self.placement, described.blueprint, Rank(Shard(rank, size))
        )


@pytest.fixture(params=[*METHODS, "INT8", "INT4", "plain"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Model:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    save_tiny(plain, **SIZES)
    if request.param not in METHODS:
        bits = {"INT8": 8, "INT4": 4}.get(request.param)
        return Model(plain, Placement(torch.float32, CPU, bits))
    # Its 72 inputs have no group.
    save_packed(plain, packed, METHODS[request.param], skipped=("o_proj",))
    return Model(packed, Placement(torch.float32, CPU))


def weight_of(product: Any, num_inputs: int) -> torch.Tensor:
    """What a product multiplies by: [N, num_inputs]."""
    weight: torch.Tensor = product(torch.eye(num_inputs)).T
    return weight


def test_outputs_are_shared_also_within_words(model: Model) -> None:
    def read(rank: int = 0, size: int = 1) -> torch.Tensor:
        shard = Shard(rank, size)
        parts = {"q_proj": [Block(72, shard)], "k_proj": [Block(24, shard)]}
        reader = model.reader(rank, size)
        return weight_of(reader.split_outputs("model.layers.1.self_attn", parts, 96), 96)

    first, second = read(0, 2), read(1, 2)
    together = torch.cat((first[:36], second[:36], first[36:], second[36:]))
    torch.testing.assert_close(together, read(), rtol=0, atol=0)


@pytest.mark.parametrize("size", [2, 3])
def test_inputs_are_shared_between_groups(model: Model, size: int) -> None:
    def read(rank: int = 0, size: int = 1) -> torch.Tensor:
        product = model.reader(rank, size).split_inputs("model.layers.0.mlp.down_proj", 96, 768)
        return weight_of(product, 768 // size)

    together = torch.cat([read(rank, size) for rank in range(size)], 1)
    torch.testing.assert_close(together, read(), rtol=0, atol=0)


@pytest.mark.parametrize("part", ["gate", "shared_expert_gate"])
def test_what_chooses_experts_is_never_rounded(tmp_path: Path, part: str) -> None:
    save_tiny(tmp_path, "qwen2_moe")
    described = describe_model(tmp_path)
    checkpoint = open_checkpoint(described.path, described.blueprint)
    formats = MatrixFormats(checkpoint, Placement(torch.float32, CPU, 4), None)

    assert formats.choose(f"model.layers.0.mlp.{part}") == "plain"
    assert formats.choose("model.layers.0.mlp.experts.0.gate_proj") == "rounded"
