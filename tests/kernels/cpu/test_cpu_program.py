"""A program refuses what would lead it astray, and its memory is shared by buffers in turn."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_batches import Heads, build_batch
from forebay_kernels.cpu.buffer_places import Life, place_buffers
from forebay_kernels.cpu.instructions import Instruction
from forebay_kernels.cpu.library import native
from forebay_kernels.cpu.packed_matrix import pack_dense
from forebay_kernels.cpu.program import Program
from forebay_kernels.cpu.step import StepArrays
from forebay_kernels.cpu.thread_pool import ThreadPool
from native_programs import rows_only

TABLE = torch.zeros(10, 32)


def _program(max_tokens: int = 8) -> Program:
    """Of 10 token ids, over a cache of 28 blocks of 16 (25 of a sequence of 400)."""
    layer = build_batch([(1, 400)], Heads(1, 1, 32)).layer
    program = Program(max_tokens, 2, 2, ThreadPool(2))
    program.output(program.attention(program.embedding(TABLE), layer))
    program.finish()
    return program


def _step(**changes: object) -> StepArrays:
    two = {
        "query_starts": np.array([0, 1, 3], np.int32),
        "seq_lens": np.array([20, 2], np.int32),
        "block_tables": np.array([[3, 4], [5, -1]], np.int32),
    }
    return rows_only(3)._replace(**(two | changes))  # type: ignore[arg-type]


def test_a_step_within_the_limits_runs() -> None:
    _program().run(_step())


@pytest.mark.parametrize(
    "changes",
    [
        {"token_ids": np.array([0, 10, 1])},
        {"token_ids": np.array([0, -1, 1])},
        {"slots": np.array([0, 28 * 16, 1])},
        {"sampled_rows": np.array([3])},
        {"query_starts": np.array([0, 1, 4], np.int32)},
        {"query_starts": np.array([0, 2, 1], np.int32)},
        {"query_starts": np.array([-1, 1, 3], np.int32)},
        {"seq_lens": np.array([33, 2], np.int32)},
        {"seq_lens": np.array([20, 1], np.int32)},
        {"block_tables": np.array([[3, 28], [5, -1]], np.int32)},
        {"block_tables": np.array([[3, -1], [5, -1]], np.int32)},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_a_step_that_points_elsewhere_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="outside of the model or the cache"):
        _program().run(_step(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"token_ids": np.zeros(3, np.int32)},
        {"positions": np.zeros(2, np.int64)},
        {"slots": np.zeros(6, np.int64)[::2]},
        {"query_starts": np.zeros(2, np.int32)},
        {"block_tables": np.zeros((2, 2), np.int64)},
        {"block_tables": np.zeros((1, 2), np.int32)},
        {"block_tables": np.zeros(2, np.int32)},
    ],
)
def test_arrays_of_another_shape_or_format_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="arrays"):
        _program().run(_step(**changes))


def test_a_step_with_more_tokens_than_the_program_takes_is_refused() -> None:
    with pytest.raises(ValueError, match="a step of 3 tokens"):
        _program(max_tokens=2).run(_step())


def test_operands_that_do_not_fit_are_refused() -> None:
    program = Program(2, 1, 1, ThreadPool(1))
    rows = program.embedding(torch.zeros(2, 33))
    layer = build_batch([(1, 3)], Heads(2, 2, 11)).layer
    with pytest.raises(ValueError, match="no two halves"):
        program.gate_mul(rows, "silu")
    with pytest.raises(ValueError, match="3 query heads do not divide over 2"):
        program.attention(rows, layer)
    with pytest.raises(ValueError, match="33 numbers for 32 inputs"):
        program.linear(rows, pack_dense(torch.zeros(4, 32)))


def test_nothing_is_recorded_once_a_program_is_finished() -> None:
    with pytest.raises(RuntimeError, match="finished"):
        _program().embedding(TABLE)


def test_instructions_are_as_long_as_the_native_ones() -> None:
    library = native()
    assert library is not None
    library.fb_instruction_bytes.restype = ctypes.c_int64
    kinds = Instruction.__subclasses__()
    assert [library.fb_instruction_bytes(kind.OPERATION) for kind in kinds] == [
        ctypes.sizeof(kind) for kind in kinds
    ]
    assert library.fb_instruction_bytes(len(kinds)) == 0


def test_a_stack_of_layers_takes_the_memory_of_one() -> None:
    def num_bytes(num_layers: int) -> int:
        program = Program(64, 2, 2, ThreadPool(1))
        x = program.embedding(TABLE)
        for _ in range(num_layers):
            program.add(x, program.gate_mul(program.linear_row(x, [(wide, None)]), "silu"))
        program.output(x)
        program.finish()
        return program.num_bytes

    wide = pack_dense(torch.zeros(64, 32))
    assert num_bytes(9) == num_bytes(1)


def test_programs_that_share_memory_compute_by_turns_what_they_compute_alone() -> None:
    pool, table = ThreadPool(2), torch.randn(10, 32)
    wide, narrow = pack_dense(torch.randn(67, 32)), pack_dense(torch.randn(32, 67))

    def record(num_layers: int, beside: Program | None = None) -> tuple[Program, torch.Tensor]:
        program = Program(8, 1, 1, pool)
        x = program.embedding(table)
        for _ in range(num_layers):
            program.linear_add(x, program.linear(x, wide), narrow)
        out = program.output(program.rms_norm(x, torch.ones(32), 1e-5))
        program.finish(beside)
        return program, out

    def run(program: Program, out: torch.Tensor, num_tokens: int) -> list[float]:
        program.run(rows_only(num_tokens))
        numbers: list[float] = out[:num_tokens].flatten().tolist()
        return numbers

    alone = {(n, layers): run(*record(layers), n) for n in (1, 3, 8) for layers in (1, 5)}
    whole = record(5)
    few = record(1, beside=whole[0])
    for num_tokens in (8, 1, 3, 8):
        assert run(*few, num_tokens) == alone[num_tokens, 1]
        assert run(*whole, num_tokens) == alone[num_tokens, 5]
    del whole
    assert run(*few, 8) == alone[8, 1]


_LIVES = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(0, 20), st.integers(0, 20)).map(
        lambda parts: Life(parts[0], min(parts[1:]), max(parts[1:]))
    ),
    max_size=12,
)


@given(_LIVES)
def test_buffers_that_live_at_the_same_time_lie_apart(lives: list[Life]) -> None:
    offsets, num_bytes = place_buffers(lives)
    spans = [(at, at + life.num_bytes, life) for at, life in zip(offsets, lives, strict=True)]
    for index, (start, end, life) in enumerate(spans):
        assert start % 64 == 0 and end <= num_bytes
        for other_start, other_end, other in spans[:index]:
            assert end <= other_start or other_end <= start or not life.meets(other)
