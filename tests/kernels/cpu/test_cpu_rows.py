"""The CPU's operations on rows are what the reference says, in every set of instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from forebay_kernels import reference
from forebay_kernels.cpu.instruction_list import Buffer
from forebay_kernels.cpu.packed_matrix import pack_dense
from forebay_kernels.cpu.program import Program
from forebay_kernels.portable import elementwise
from native_programs import run_rows
from product_oracle import Coding, instructions, random_codes, usable_isas

SHAPES = [(1, 2), (1, 64), (3, 576), (67, 130), (5, 1538), (33, 4098)]
ids = [f"{rows}x{width}" for rows, width in SHAPES]


@pytest.fixture(params=usable_isas(), autouse=True)
def isa(request: pytest.FixtureRequest) -> Iterator[None]:
    torch.manual_seed(0)
    with instructions(request.param):
        yield


Operation = tuple[Callable[[Program, Buffer], Buffer], Callable[[Tensor], Tensor]]


def _norm(weight: Tensor) -> Operation:
    return (
        lambda program, x: program.rms_norm(x, weight, 1e-5),
        lambda x: reference.rms_norm(x, weight, 1e-5),
    )


OPERATIONS: dict[str, Operation] = {
    "silu-gate": (lambda p, x: p.gate_mul(x, "silu"), elementwise.silu_mul),
    "gelu-gate": (lambda p, x: p.gate_mul(x, "gelu_tanh"), elementwise.gelu_tanh_mul),
    "softcap": (lambda p, x: p.softcap(x, 3.0), lambda x: torch.tanh(x / 3) * 3),
    "scale": (lambda p, x: p.scale(x, 0.37), lambda x: x * 0.37),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(("num_rows", "width"), SHAPES, ids=ids)
def test_an_operation_equals_torchs_in_float64(name: str, num_rows: int, width: int) -> None:
    native, expected = OPERATIONS[name]
    x = torch.randn(num_rows, width) * torch.tensor([0.1, 1.0, 20.0])[torch.arange(width) % 3]
    wanted = expected(x.double())
    torch.testing.assert_close(run_rows(x, native).double(), wanted, rtol=4e-6, atol=1e-7)


@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("num_rows", "width"), SHAPES, ids=ids)
def test_a_norm_equals_the_reference(weight_dtype: torch.dtype, num_rows: int, width: int) -> None:
    native, expected = _norm(torch.randn(width).to(weight_dtype))
    x = torch.randn(num_rows, width) * 3
    torch.testing.assert_close(run_rows(x, native), expected(x), rtol=2e-6, atol=1e-7)


def test_rows_are_added_in_place() -> None:
    def record(program: Program, x: Buffer) -> Buffer:
        program.add(x, program.scale(program.embedding(2 * table), 1.0))
        return x

    table = torch.randn(9, 333)
    torch.testing.assert_close(run_rows(table, record), 3 * table)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_an_embedding_gives_the_rows_of_a_table_times_a_scale(dtype: torch.dtype) -> None:
    table = torch.randn(12, 77).to(dtype)
    table[3] = table[3] * 2**-20
    # Damaged weights are to be told, so they may not come to look like others.
    table[5, :3] = torch.tensor([torch.inf, -torch.inf, torch.nan])
    out = run_rows(torch.zeros(12, 1), lambda program, _: program.embedding(table, 1.5))
    torch.testing.assert_close(out, table.float() * 1.5, rtol=0, atol=0, equal_nan=True)


def test_an_embedding_gives_the_rows_of_a_packed_matrix() -> None:
    coded = random_codes(Coding(4, 32, "mins"), 40, 96)
    out = run_rows(torch.zeros(40, 1), lambda program, _: program.embedding(coded.packed, 0.5))
    torch.testing.assert_close(out.double(), coded.weight * 0.5)


def test_sampled_rows_go_on_alone() -> None:
    x = torch.randn(20, 65)
    rows = [0, 3, 3, 19]
    out = run_rows(x, lambda program, each: program.take_sampled(each), rows)
    torch.testing.assert_close(out, x[rows], rtol=0, atol=0)


def test_products_stand_side_by_side_and_are_added_to_a_residual() -> None:
    weights = [torch.randn(n, 70) for n in (20, 7)]
    biases = [torch.randn(20), None]

    def record(program: Program, x: Buffer) -> Buffer:
        parts = list(zip(map(pack_dense, weights), biases, strict=True))
        row = program.linear_row(x, parts)
        program.linear_add(row, x, pack_dense(torch.cat(weights)))
        return row

    x = torch.randn(5, 70)
    expected = 2 * x @ torch.cat(weights).T
    expected[:, :20] += biases[0]
    torch.testing.assert_close(run_rows(x, record), expected, rtol=1e-4, atol=1e-4)


def test_rows_with_a_number_that_is_not_finite_are_flagged() -> None:
    x = torch.randn(70, 131)
    x[3, 130], x[40, 0], x[69, 64] = torch.inf, torch.nan, -torch.inf
    flags: list[Tensor] = []

    def record(program: Program, each: Buffer) -> Buffer:
        flags.append(program.flag_finite(each))
        return each

    run_rows(x, record)
    assert (~flags[0]).nonzero().flatten().tolist() == [3, 40, 69]


def test_nan_goes_through_a_gate_and_a_norm() -> None:
    x = torch.randn(2, 64)
    x[1, 5] = torch.nan
    out = run_rows(x, lambda program, each: program.gate_mul(each, "silu"))
    assert out.isnan().nonzero().tolist() == [[1, 5]]
    normed = run_rows(x, lambda program, each: program.rms_norm(each, torch.ones(64), 1e-5))
    assert normed[1].isnan().all() and not normed[0].isnan().any()
