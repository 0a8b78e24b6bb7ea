"""Attention's kernels are what the reference says, in every mix, kind of cache and odd size."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from triton.runtime import interpreter

from attention_batches import AttentionBatch, Heads, build_batch
from forebay_kernels import ops
from forebay_kernels.attention_rule import AttentionRule
from forebay_kernels.gpu.attention.decode import attend_decodes
from forebay_kernels.gpu.attention.plan import DeviceAttentionPlan
from forebay_kernels.gpu.attention.split import Splits
from forebay_kernels.ragged import Ragged

F32 = pytest.param("cpu", torch.float32, marks=pytest.mark.interpreted, id="f32")
F16 = pytest.param("cpu", torch.float16, marks=pytest.mark.interpreted, id="f16")
BF16 = pytest.param("cuda", torch.bfloat16, marks=pytest.mark.gpu, id="bf16")
PLACES = pytest.mark.parametrize(("device", "dtype"), [F32, F16, BF16])
ONE_PLACE = pytest.mark.parametrize(("device", "dtype"), [F16, BF16])
TOLERANCES = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 3e-2}

SMALL = Heads(6, 3, 16)
MIXED = ((1, 3), (1, 70), (4, 4), (37, 90), (2, 2))


def dot_in_order(_: object, a: Any, b: Any, added: Any, *__: object) -> interpreter.TensorHandle:
    """The interpreter's matrix product, each number's sum from the first on."""
    wide = np.float32
    products = a.data.astype(wide).T[:, :, None] * b.data.astype(wide)[:, None, :]
    return interpreter.TensorHandle(products.sum(0) + added.data, added.dtype.scalar)


def check(batch: AttentionBatch, rule: AttentionRule, **how: bool) -> None:
    tolerance = TOLERANCES[batch.q.dtype]
    out = batch.attend(rule, **how)
    torch.testing.assert_close(out, batch.expected(rule), atol=tolerance, rtol=tolerance)


@dataclass(frozen=True)
class Case:
    """Sequences as (query tokens, tokens in all)."""

    spans: tuple[tuple[int, int], ...]
    heads: Heads = SMALL
    block_size: int = 16
    num_padded_rows: int = 0


CASES = {
    "first-token": Case(((1, 1),)),
    "one-decode-of-a-whole-tile": Case(((1, 128),)),
    "one-decode-past-a-tile": Case(((1, 129),), block_size=64),
    "decodes-of-unlike-lengths": Case(((1, 1), (1, 300), (1, 17), (1, 64)), Heads(4, 2, 64)),
    "decodes-and-padded-rows": Case(((1, 5), (1, 33)), num_padded_rows=6),
    "whole-prompt": Case(((19, 19),)),
    "chunk-behind-a-prefix": Case(((50, 180),), block_size=32),
    "prompts-and-padded-rows": Case(((3, 3), (40, 50)), num_padded_rows=21),
    "mixed": Case(MIXED, num_padded_rows=3),
    "mixed-in-blocks-of-one": Case(((1, 9), (7, 20)), block_size=1),
    "smollm2": Case(MIXED, Heads(9, 3, 64)),
    "qwen2.5": Case(((1, 40), (11, 30)), Heads(14, 2, 64)),
    "one-kv-head-of-many": Case(((1, 40), (3, 30)), Heads(20, 1, 32)),
    "as-many-kv-heads": Case(((1, 40), (3, 30)), Heads(2, 2, 96)),
    "head-of-80": Case(((1, 40), (3, 30)), Heads(3, 1, 80)),
    "head-of-128": Case(((1, 70), (3, 30)), Heads(4, 1, 128)),
    "head-of-256": Case(((1, 40), (3, 30)), Heads(2, 1, 256)),
    "head-of-10": Case(((1, 40), (3, 30)), Heads(5, 1, 10)),
}


@PLACES
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_attention_is_the_references(case: Case, device: str, dtype: torch.dtype) -> None:
    batch = build_batch(
        case.spans, case.heads, block_size=case.block_size, dtype=dtype, device=device
    )
    batch.pad(case.num_padded_rows)
    check(batch, AttentionRule())


RULES = {
    "scaled": AttentionRule(scale=0.07),
    "capped": AttentionRule(softcap=1.5, scale=0.4),
    "window-of-one": AttentionRule(window=1),
    "window-within-a-tile": AttentionRule(window=9),
    "window-of-some-tiles": AttentionRule(window=33),
    "window-over-all": AttentionRule(window=500),
    "window-and-cap": AttentionRule(window=20, softcap=2.0),
}


@ONE_PLACE
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_rules_are_the_references(rule: AttentionRule, device: str, dtype: torch.dtype) -> None:
    check(build_batch(MIXED, SMALL, dtype=dtype, device=device), rule)


@ONE_PLACE
@pytest.mark.parametrize("window", [None, 20])
def test_sinks_take_their_part_and_give_nothing(
    window: int | None, device: str, dtype: torch.dtype
) -> None:
    rule = AttentionRule(window=window, softcap=3.0, sinks=torch.randn(6, device=device))
    check(build_batch(((1, 600), *MIXED), SMALL, dtype=dtype, device=device), rule)


@ONE_PLACE
@pytest.mark.parametrize("kind", ["fp8", "int8", "int4"])
@pytest.mark.parametrize(
    "heads", [Heads(4, 2, 16), Heads(3, 1, 80), Heads(4, 1, 128)], ids=["16", "80", "128"]
)
def test_quantised_caches_are_read_by_their_scales(
    kind: str, heads: Heads, device: str, dtype: torch.dtype
) -> None:
    spans = ((1, 3), (1, 300), (9, 21), (40, 90))
    batch = build_batch(spans, heads, kind=kind, dtype=dtype, device=device)
    check(batch, AttentionRule(window=50, sinks=torch.randn(heads.num_heads, device=device)))
    check(batch, AttentionRule())


@ONE_PLACE
@pytest.mark.parametrize("num_splits", [2, 7])
@pytest.mark.parametrize("kind", ["plain", "int4"])
def test_parts_of_a_sequence_make_the_whole(
    num_splits: int, kind: str, device: str, dtype: torch.dtype
) -> None:
    spans = ((1, 1), (1, 700), (1, 129))
    batch = build_batch(spans, SMALL, kind=kind, dtype=dtype, device=device)
    plan = DeviceAttentionPlan(batch.ragged)
    sinks = torch.randn(6, device=device)
    for rule in (AttentionRule(sinks=sinks), AttentionRule(window=300, softcap=4.0)):
        out = torch.empty_like(batch.q)
        attend_decodes(batch.q, batch.layer, plan, rule, out, Splits(num_splits, least_keys=64))
        tolerance = TOLERANCES[dtype]
        torch.testing.assert_close(out, batch.expected(rule), atol=tolerance, rtol=tolerance)


@ONE_PLACE
def test_sequences_of_padding_give_zeros_with_rows_and_without(
    device: str, dtype: torch.dtype
) -> None:
    batch = build_batch(((1, 5), (1, 40), (1, 9)), SMALL, dtype=dtype, device=device)
    expected = batch.expected(AttentionRule())
    batch.pad(2)
    expected = torch.nn.functional.pad(expected, (0, 0, 0, 0, 0, 2))
    tables = torch.nn.functional.pad(batch.ragged.block_tables, (0, 0, 0, 2), value=2**31 - 1)
    lens = torch.tensor([5, 40, 9, 0, 0], dtype=torch.int32, device=device)
    for starts in ([0, 1, 2, 3, 3, 3], [0, 1, 2, 3, 4, 5]):
        batch.ragged = Ragged(
            (1,) * 5,
            (5, 40, 9, 0, 0),
            tables,
            batch.ragged.slots,
            torch.tensor(starts, dtype=torch.int32, device=device),
            lens,
        )
        for is_batch_invariant in (False, True):
            out = batch.attend(AttentionRule(), is_batch_invariant=is_batch_invariant)
            tolerance = TOLERANCES[dtype]
            torch.testing.assert_close(out, expected, atol=tolerance, rtol=tolerance)


@ONE_PLACE
@pytest.mark.parametrize("window", [1, 20, 64])
def test_what_fell_out_of_the_window_is_never_read(
    window: int, device: str, dtype: torch.dtype
) -> None:
    spans = ((1, 9), (1, 300), (5, 140), (70, 90))
    batch = build_batch(spans, SMALL, dtype=dtype, device=device)
    rule = AttentionRule(window=window)
    before = batch.attend(rule)
    is_seen = torch.zeros(len(batch.layer.k) * 16, dtype=torch.bool)
    for table, (query_len, seq_len) in zip(batch.ragged.block_tables, spans, strict=True):
        first = max(0, seq_len - query_len + 1 - window)
        positions = torch.arange(first, seq_len)
        is_seen[table.cpu().long()[positions // 16] * 16 + positions % 16] = True
        table[: first // 16] = -(2**31)
    for numbers in (batch.layer.k, batch.layer.v):
        numbers.flatten(0, 1)[~is_seen.to(device)] = torch.nan
    assert torch.equal(batch.attend(rule), before)


@ONE_PLACE
def test_a_query_has_the_same_numbers_in_every_batch_where_that_is_asked_for(
    device: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A BLAS library orders a row's sums by where in its tile the row stands; a GPU does not.
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", dot_in_order)
    length, heads = 150, Heads(3, 1, 64)
    rule = AttentionRule(window=70, softcap=5.0, sinks=torch.randn(3, device=device))
    batch = build_batch(((length, length),), heads, dtype=dtype, device=device)
    whole = batch.attend(rule, is_batch_invariant=True)
    check(batch, rule, is_batch_invariant=True)
    table, slots, q = batch.ragged.block_tables, batch.ragged.slots, batch.q
    for cut in ((1, 64, 85), (37, 113), (149, 1), (20, 1, 1, 1, 127)):
        end = 0
        for query_len in cut:
            start, end = end, end + query_len
            # Among others: a decode before it and a longer prompt behind it.
            batch.ragged = Ragged.of(
                (1, query_len, 30), (77, end, 130), table.expand(3, -1).contiguous(), slots
            )
            batch.q = torch.cat((q[:1], q[start:end], q[:30]))
            out = batch.attend(rule, is_batch_invariant=True)
            assert torch.equal(out[1 : 1 + query_len], whole[start:end])


@pytest.mark.interpreted
def test_a_cpu_that_interprets_has_the_devices_plan() -> None:
    batch = build_batch(((1, 5),), SMALL)
    assert isinstance(ops.plan_attention(batch.ragged, 16, torch.float32), DeviceAttentionPlan)


@pytest.mark.interpreted
def test_what_would_be_misread_is_refused() -> None:
    batch = build_batch(((1, 5),), SMALL)
    batch.q = batch.q[:, :4]
    with pytest.raises(ValueError, match="4 query heads do not divide over 3 KV heads"):
        batch.attend(AttentionRule())
    batch = build_batch(((1, 5),), SMALL, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="no bfloat16"):
        batch.attend(AttentionRule())
