"""Native programs for tests: rows through an operation, and batches through attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from attention_batches import AttentionBatch
from forebay_kernels.attention_rule import AttentionRule
from forebay_kernels.cpu.instruction_list import Buffer
from forebay_kernels.cpu.native_structs import InputForm
from forebay_kernels.cpu.program import Program
from forebay_kernels.cpu.step import StepArrays
from forebay_kernels.cpu.thread_pool import ThreadPool


def run_rows(
    x: Tensor,
    record: Callable[[Program, Buffer], Buffer],
    sampled_rows: Sequence[int] = (),
    num_threads: int = 2,
) -> Tensor:
    """What a program makes of rows x [T, N]."""
    num_tokens = len(x)
    program = Program(num_tokens, 1, max(1, len(sampled_rows)), ThreadPool(num_threads))
    out = record(program, program.embedding(x))
    result = program.output(out)
    program.finish()
    program.run(rows_only(num_tokens, sampled_rows))
    return result[: len(sampled_rows) if out.is_sampled else num_tokens]


def rows_only(num_tokens: int, sampled_rows: Sequence[int] = ()) -> StepArrays:
    """A step of tokens 0, 1, … without sequences."""
    ids = np.arange(num_tokens)
    return StepArrays(
        token_ids=ids,
        positions=np.zeros(num_tokens, np.int64),
        slots=np.full(num_tokens, -1),
        query_starts=np.zeros(1, np.int32),
        seq_lens=np.zeros(0, np.int32),
        block_tables=np.zeros((0, 1), np.int32),
        sampled_rows=np.array(sampled_rows, np.int64),
    )


def attend_natively(
    batch: AttentionBatch,
    rule: AttentionRule,
    pool: ThreadPool | None = None,
    input_form: InputForm = InputForm.ROUNDED,
) -> Tensor:
    """A batch's attention, out [T, H, D]."""
    num_tokens, ragged = len(batch.q), batch.ragged
    program = Program(
        num_tokens, len(ragged.seq_lens), 1, pool or ThreadPool(2), input_form=input_form
    )
    queries = program.embedding(batch.q.flatten(1).float())
    result = program.output(program.attention(queries, batch.layer, rule))
    result.fill_(torch.nan)
    program.finish()
    program.run(
        rows_only(num_tokens)._replace(
            query_starts=ragged.query_starts.numpy(),
            seq_lens=ragged.seq_lens_device.numpy(),
            block_tables=ragged.block_tables.contiguous().numpy(),
        )
    )
    return result.view(batch.q.shape)
