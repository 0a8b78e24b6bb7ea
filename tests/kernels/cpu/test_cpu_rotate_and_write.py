"""Rotation and cache write on a CPU are what the reference says, for every kind of cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from forebay_kernels import ops, reference
from forebay_kernels.cpu.program import Program
from forebay_kernels.cpu.thread_pool import ThreadPool
from forebay_kernels.kv_layer import KvLayer, new_kv_layers
from forebay_kernels.rotation import HeadNorms, Rotation
from native_programs import rows_only
from product_oracle import instructions, usable_isas

NUM_BLOCKS, BLOCK_SIZE, NUM_POSITIONS = 12, 5, 300
STEPS = {"fp8": 0.07, "int8": 0.011, "int4": 0.17}
"""The most that two neighbours differ by, relatively to a head's largest number."""


@dataclass(frozen=True)
class Case:
    """A model's heads, and how they are kept."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotated: int
    kind: str = "plain"
    dtype: torch.dtype = torch.float32
    has_norms: bool = False
    num_tokens: int = 7

    def __str__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.") if self.kind == "plain" else self.kind
        return f"{self.num_heads}-{self.num_kv_heads}-{self.head_dim}-{self.rotated}-{kind}"

    def new_layer(self) -> KvLayer:
        """Empty."""
        shape = (NUM_BLOCKS, BLOCK_SIZE, self.num_kv_heads, self.head_dim)
        return new_kv_layers(1, shape, self.kind, self.dtype, torch.device("cpu"))[0]


CASES = [
    Case(9, 3, 64, 64),
    Case(3, 3, 80, 32, dtype=torch.bfloat16, has_norms=True),
    Case(14, 2, 96, 96, dtype=torch.float16, num_tokens=40),
    Case(4, 1, 128, 64, "fp8", has_norms=True),
    Case(3, 1, 10, 10, "int8"),
    Case(2, 2, 64, 64, "int4", num_tokens=1),
    Case(9, 3, 80, 80, "int4", has_norms=True, num_tokens=40),
]


@pytest.fixture(params=usable_isas(), autouse=True)
def isa(request: pytest.FixtureRequest) -> Iterator[None]:
    torch.manual_seed(0)
    with instructions(request.param):
        yield


def _native(
    qkv: Tensor, norms: HeadNorms | None, rotation: Rotation, layer: KvLayer, slots: Tensor
) -> Tensor:
    program = Program(len(qkv), 1, 1, ThreadPool(2))
    rows = program.embedding(qkv)
    out = program.output(program.rotate_and_write(rows, norms, rotation.cos, rotation.sin, layer))
    program.finish()
    program.run(
        rows_only(len(qkv))._replace(positions=rotation.positions.numpy(), slots=slots.numpy())
    )
    return out.view(len(qkv), -1, layer.head_dim)


def _rotation(case: Case) -> Rotation:
    frequencies = 1 / 10000 ** (torch.arange(0, case.rotated, 2) / case.rotated)
    cos, sin = ops.rope_table(frequencies, NUM_POSITIONS)
    return Rotation(cos, sin, torch.randint(NUM_POSITIONS, (case.num_tokens,)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_queries_are_turned_and_keys_and_values_written(case: Case) -> None:
    width = (case.num_heads + 2 * case.num_kv_heads) * case.head_dim
    qkv, rotation = torch.randn(case.num_tokens, width), _rotation(case)
    slots = torch.randperm(NUM_BLOCKS * BLOCK_SIZE)[: case.num_tokens]
    slots[case.num_tokens // 2] = -1
    weight = torch.randn(case.num_heads + case.num_kv_heads, case.head_dim)
    norms = HeadNorms(weight, 1e-5) if case.has_norms else None
    native, wanted = case.new_layer(), case.new_layer()

    queries = _native(qkv, norms, rotation, native, slots)

    expected = reference.rotate_and_write(qkv, norms, rotation, wanted, slots)
    torch.testing.assert_close(queries, expected, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(reference.read_kv(native), reference.read_kv(wanted), strict=True):
        # Next to the middle of two neighbours the last bit decides which it is.
        step = STEPS.get(case.kind, {torch.float32: 1e-6}.get(case.dtype, 0.008))
        largest = theirs.abs().amax(-1, keepdim=True)
        assert ((ours - theirs).abs() <= 1e-6 + step * largest).all()
        assert ((ours - theirs).abs() > 1e-5 * (1 + theirs.abs())).float().mean() < 0.01


@pytest.mark.parametrize("kind", ["fp8", "int8", "int4"])
def test_quantised_values_are_what_torch_keeps(kind: str) -> None:
    case = Case(1, 1, 64, 64, kind)
    qkv, rotation, slots = torch.randn(7, 192), _rotation(case), torch.arange(7)
    qkv = qkv * torch.tensor([1e-3, 1, 1e3])[torch.arange(192) % 3]
    native = case.new_layer()
    _native(qkv, None, rotation, native, slots)
    wanted = case.new_layer()
    ops.write_kv(qkv[:, 64:128, None].mT, qkv[:, 128:, None].mT, wanted, slots)
    assert torch.equal(native.v.view(torch.uint8), wanted.v.view(torch.uint8))
    if native.v_scale is not None and wanted.v_scale is not None:
        assert torch.equal(native.v_scale, wanted.v_scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_only_finite_numbers_are_written(dtype: torch.dtype) -> None:
    case = Case(1, 1, 8, 8, dtype=dtype, num_tokens=1)
    qkv = torch.zeros(1, 24)
    qkv[0, 16:] = torch.tensor([torch.nan, torch.inf, -torch.inf, 3.4e38, -3.4e38, 1e-30, 0, -1])
    layer = case.new_layer()
    _native(
        qkv,
        None,
        Rotation(*torch.zeros(2, 1, 1, 8), torch.zeros(1, dtype=torch.int64)),
        layer,
        torch.zeros(1, dtype=torch.int64),
    )
    kept = layer.v[0, 0, 0].float()
    assert kept.isfinite().all()
    assert kept[:3].tolist() == torch.tensor([0, 65504, -65504]).to(dtype).tolist()
    assert kept[3:5].sign().tolist() == [1, -1] and kept[-1] == -1
