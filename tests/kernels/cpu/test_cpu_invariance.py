"""A token's numbers on a CPU are the same bits in any company: of batch, chunk, blocks and threads.

Greedy speculative decoding relies on it: what verifies several tokens at once must say what one at
a time would have.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from attention_batches import AttentionBatch, Heads, build_batch
from forebay_kernels.attention_rule import FULL_ATTENTION, AttentionRule
from forebay_kernels.cpu.instruction_list import Buffer
from forebay_kernels.cpu.program import Program
from forebay_kernels.cpu.thread_pool import ThreadPool
from forebay_kernels.ragged import Ragged
from native_programs import attend_natively, run_rows
from product_oracle import instructions, usable_isas

RULES = {
    "full": FULL_ATTENTION,
    "window": AttentionRule(window=150),
    "soft-cap-and-sinks": AttentionRule(softcap=3.0, sinks=torch.linspace(-1, 4, 14)),
}
HEADS = [Heads(14, 2, 64), Heads(14, 14, 80), Heads(14, 7, 96)]
KINDS = {
    "float32": ("plain", torch.float32),
    "float16": ("plain", torch.float16),
    "int8": ("int8", torch.float32),
    "int4": ("int4", torch.float32),
}


@pytest.fixture(params=usable_isas(), autouse=True)
def isa(request: pytest.FixtureRequest) -> Iterator[None]:
    torch.manual_seed(0)
    with instructions(request.param):
        yield


def _slice(batch: AttentionBatch, spans: list[tuple[int, int, int]]) -> AttentionBatch:
    """Queries [start, stop) by position of sequences: (sequence, start, stop) each."""
    ragged = batch.ragged
    rows = []
    for seq, start, stop in spans:
        first = int(ragged.query_starts[seq]) - ragged.seq_lens[seq] + ragged.query_lens[seq]
        rows.append(batch.q[first + start : first + stop])
    part = Ragged.of(
        [stop - start for _, start, stop in spans],
        [stop for _, _, stop in spans],
        ragged.block_tables[[seq for seq, _, _ in spans]],
        ragged.slots,
    )
    return AttentionBatch(part, batch.layer, torch.cat(rows))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize(("kind", "dtype"), KINDS.values(), ids=KINDS)
def test_a_prompt_cut_anywhere_attends_as_one(
    kind: str, dtype: torch.dtype, heads: Heads, rule: AttentionRule
) -> None:
    batch = build_batch([(420, 420)], heads, kind=kind, dtype=dtype)
    whole = attend_natively(batch, rule)
    cuts = [0, 1, 2, 130, 255, 256, 257, 300, 419, 420]
    parts = [
        attend_natively(_slice(batch, [(0, start, stop)]), rule)
        for start, stop in zip(cuts, cuts[1:], strict=False)
    ]
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_token_attends_the_same_in_any_batch(rule: AttentionRule, dtype: torch.dtype) -> None:
    heads = Heads(14, 2, 64)
    batch = build_batch([(1, 900), (5, 131), (64, 200), (1, 3)], heads, dtype=dtype)
    together = attend_natively(batch, rule)
    alone = [
        attend_natively(_slice(batch, [(seq, total - count, total)]), rule)
        for seq, (count, total) in enumerate([(1, 900), (5, 131), (64, 200), (1, 3)])
    ]
    assert torch.equal(torch.cat(alone), together)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("num_threads", [1, 3, 16])
def test_threads_change_no_bit_of_attention(num_threads: int, dtype: torch.dtype) -> None:
    batch = build_batch([(1, 2000), (3, 131), (64, 200)], Heads(9, 3, 64), dtype=dtype)
    expected = attend_natively(batch, FULL_ATTENTION)
    assert torch.equal(attend_natively(batch, FULL_ATTENTION, ThreadPool(num_threads)), expected)


def test_it_is_of_no_account_which_blocks_a_sequence_has() -> None:
    batch = build_batch([(3, 400)], Heads(9, 3, 64))
    expected = attend_natively(batch, FULL_ATTENTION)
    order = torch.randperm(len(batch.layer.k))
    for part in (batch.layer.k, batch.layer.v):
        part[order] = part.clone()
    tables = batch.ragged.block_tables[:, :25].long()
    moved = Ragged.of([3], [400], order[tables].int(), batch.ragged.slots)
    assert torch.equal(
        attend_natively(AttentionBatch(moved, batch.layer, batch.q), FULL_ATTENTION), expected
    )


def _mlp(program: Program, x: Buffer) -> Buffer:
    normed = program.rms_norm(x, torch.linspace(0.5, 2, x.width), 1e-5)
    return program.softcap(program.gate_mul(normed, "silu"), 2.0)


@pytest.mark.parametrize("num_threads", [1, 4])
@pytest.mark.parametrize("num_rows", [1, 2, 5, 66])
def test_a_row_is_the_same_among_any_others(num_rows: int, num_threads: int) -> None:
    x = torch.randn(67, 1153 * 2)
    whole: Tensor = run_rows(x, _mlp)
    assert torch.equal(run_rows(x[:num_rows].contiguous(), _mlp, (), num_threads), whole[:num_rows])
