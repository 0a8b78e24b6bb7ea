"""A row of a product has the same bits in any company, of rows, threads and neighbours."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from forebay_kernels.cpu.native_structs import InputForm
from forebay_kernels.cpu.packed_matrix import PackedMatrix, pack_dense
from forebay_kernels.cpu.product import CpuLinear, Product
from forebay_kernels.cpu.thread_pool import ThreadPool
from forebay_kernels.cpu.workspace import Workspace
from product_oracle import Coding, instructions, random_codes, usable_isas

NUM_OUTPUTS, NUM_INPUTS = 77, 640
MAKERS: dict[str, Callable[[], PackedMatrix]] = {
    **{
        str(coding): lambda coding=coding: random_codes(coding, NUM_OUTPUTS, NUM_INPUTS).packed
        for coding in (
            Coding(4, 32, "middle"),
            Coding(4, 128, "integers"),
            Coding(4, 32, "mins"),
            Coding(6, 16, "middle"),
            Coding(5, 32, "mins"),
            Coding(8, 32, "middle"),
            Coding(8, None, "middle"),
        )
    },
    "float32": lambda: pack_dense(torch.randn(NUM_OUTPUTS, NUM_INPUTS)),
    "bfloat16": lambda: pack_dense(torch.randn(NUM_OUTPUTS, NUM_INPUTS + 1).bfloat16()),
}


@pytest.fixture(params=usable_isas())
def isa(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _run(matrix: PackedMatrix, x: Tensor, input_form: InputForm, workspace: Workspace) -> Tensor:
    out = torch.empty(x.shape[0], matrix.num_outputs)
    Product(matrix, x, out, input_form=input_form).run(workspace)
    return out


@pytest.mark.parametrize("input_form", InputForm, ids=lambda form: form.name)
@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_a_row_is_the_same_alone_and_among_others(
    isa: str, maker: Callable[[], PackedMatrix], input_form: InputForm
) -> None:
    matrix = maker()
    x = torch.randn(200, matrix.num_inputs)
    alone, together = Workspace(ThreadPool(1)), Workspace(ThreadPool(3))
    with instructions(isa):
        whole = _run(matrix, x, input_form, together)
        for num_rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 25, 64, 67):
            start = num_rows % 7
            part = x[start : start + num_rows]
            for workspace in (alone, together):
                assert torch.equal(
                    _run(matrix, part, input_form, workspace), whole[start:][:num_rows]
                )


@pytest.mark.parametrize("num_threads", [2, 5, 16])
@pytest.mark.parametrize("num_outputs", [20, 576, 3000])
def test_every_part_of_a_split_product_is_computed(num_outputs: int, num_threads: int) -> None:
    matrix = random_codes(Coding(4, 32, "middle"), num_outputs, 64).packed
    alone, together = Workspace(ThreadPool(1)), Workspace(ThreadPool(num_threads))
    for num_rows in (1, 5, 47, 49, 100, 383, 385, 1000):
        x = torch.randn(num_rows, 64)
        with together.awake():
            out = _run(matrix, x, InputForm.ROUNDED, together)
        assert torch.equal(out, _run(matrix, x, InputForm.ROUNDED, alone))


@pytest.mark.parametrize("input_form", InputForm, ids=lambda form: form.name)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_what_is_no_number_stays_in_its_row(
    isa: str, maker: Callable[[], PackedMatrix], bad: float, input_form: InputForm
) -> None:
    matrix = maker()
    x = torch.randn(9, matrix.num_inputs)
    with_bad = x.clone()
    with_bad[4, 33] = bad
    linear = CpuLinear(matrix, input_form=input_form)
    with instructions(isa):
        out, clean = linear(with_bad), linear(x)
    assert not out[4].isfinite().any()
    others = [row for row in range(9) if row != 4]
    assert torch.equal(out[others], clean[others])


def test_threads_that_multiply_at_the_same_time_do_not_disturb_each_other() -> None:
    matrix, failures = random_codes(Coding(4, 32, "middle"), 200, 576).packed, list[int]()
    linear, inputs = CpuLinear(matrix), [torch.randn(rows, 576) for rows in (1, 3, 17, 40)]
    wanted = [linear(x) for x in inputs]

    def repeat(index: int) -> None:
        for _ in range(50):
            if not torch.equal(linear(inputs[index]), wanted[index]):
                failures.append(index)

    callers = [threading.Thread(target=repeat, args=(index,)) for index in range(len(inputs))]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert failures == []
