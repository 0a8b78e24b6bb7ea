"""Attention on a CPU is what the reference says: mixes of lengths, kinds of cache, and rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from attention_batches import AttentionBatch, Heads, build_batch
from forebay_kernels.attention_rule import FULL_ATTENTION, AttentionRule
from forebay_kernels.cpu.native_structs import InputForm
from native_programs import attend_natively
from product_oracle import instructions, usable_isas


@pytest.fixture(params=usable_isas(), autouse=True)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    torch.manual_seed(0)
    with instructions(request.param):
        yield request.param


@dataclass(frozen=True)
class Case:
    """Sequences as (query tokens, tokens in all), and how they are kept."""

    spans: tuple[tuple[int, int], ...]
    heads: Heads = Heads(9, 3, 64)
    rule: AttentionRule = FULL_ATTENTION
    kind: str = "plain"
    dtype: torch.dtype = torch.float32
    block_size: int = 16


MIXED = ((1, 1), (1, 128), (1, 129), (1, 700), (3, 257), (40, 40), (67, 131))
SINKS = torch.linspace(-2, 5, 14)
CASES = {
    "one-token": Case(((1, 1),)),
    "one-long-sequence-in-parts": Case(((1, 3000),)),
    "few-tokens-of-a-long-sequence-in-parts": Case(((4, 2000),), Heads(14, 2, 64)),
    "prompt": Case(((300, 300),)),
    "mixed": Case(MIXED),
    "as-many-kv-heads-of-80": Case(MIXED, Heads(3, 3, 80)),
    "fourteen-heads-of-96": Case(MIXED, Heads(14, 2, 96), dtype=torch.bfloat16),
    "one-kv-head-of-128": Case(MIXED, Heads(8, 1, 128), dtype=torch.float16),
    "odd-heads-in-odd-blocks": Case(MIXED, Heads(5, 5, 7), block_size=3),
    "window": Case(MIXED, rule=AttentionRule(window=130)),
    "short-window": Case(MIXED, rule=AttentionRule(window=5)),
    "window-of-one": Case(MIXED, rule=AttentionRule(window=1)),
    "window-of-eight-bit-keys": Case(MIXED, rule=AttentionRule(window=77), kind="int8"),
    "soft-cap": Case(MIXED, rule=AttentionRule(softcap=2.0, scale=0.4)),
    "sinks": Case(MIXED, Heads(14, 2, 64), AttentionRule(sinks=SINKS)),
    "window-with-sinks-and-cap": Case(
        MIXED, Heads(14, 2, 64), AttentionRule(window=150, softcap=5.0, sinks=SINKS)
    ),
    "bfloat16": Case(MIXED, dtype=torch.bfloat16),
    "float16": Case(MIXED, dtype=torch.float16),
    "fp8": Case(MIXED, kind="fp8"),
    "int8": Case(MIXED, kind="int8"),
    "int4": Case(MIXED, kind="int4"),
    "int4-of-80-under-a-window": Case(
        MIXED, Heads(4, 2, 80), AttentionRule(window=140), "int4", block_size=7
    ),
}


def _batch(case: Case) -> AttentionBatch:
    batch = build_batch(
        case.spans, case.heads, block_size=case.block_size, kind=case.kind, dtype=case.dtype
    )
    batch.q = batch.q.float()
    batch.pad(3)
    return batch


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_attention_equals_the_reference(case: Case) -> None:
    batch = _batch(case)
    out = attend_natively(batch, case.rule, input_form=InputForm.EXACT)
    torch.testing.assert_close(out, batch.expected(case.rule), rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rounded_to_bfloat16_it_stays_near_to_the_reference(case: Case) -> None:
    batch = _batch(case)
    out = attend_natively(batch, case.rule)
    torch.testing.assert_close(out, batch.expected(case.rule), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("kind", ["plain", "fp8", "int8", "int4"])
def test_only_what_is_rounded_differs(isa: str, kind: str) -> None:
    dtype = torch.float16 if kind == "plain" else torch.float32
    whole = build_batch(MIXED, Heads(9, 3, 64))
    rounded = build_batch(MIXED, Heads(9, 3, 64), kind=kind, dtype=dtype)
    for batch, has_pairs in ((whole, False), (rounded, isa == "avx512_bf16")):
        forms = [attend_natively(batch, FULL_ATTENTION, input_form=form) for form in InputForm]
        assert torch.equal(*forms) is not has_pairs


def test_pairs_of_bfloat16_are_summed_as_they_are_rounded(isa: str) -> None:
    batch = build_batch(MIXED, Heads(6, 2, 96), dtype=torch.bfloat16)
    # Numbers that nothing rounds, and scores so far apart that a weight is 1 or 0.
    batch.q = batch.q.float().sign() * 8
    batch.layer.k.copy_(batch.layer.k.sign())
    out = attend_natively(batch, AttentionRule(scale=16.0))
    torch.testing.assert_close(out, batch.expected(AttentionRule(scale=16.0)), rtol=1e-5, atol=1e-5)


def test_large_scores_leave_one_key() -> None:
    batch = build_batch([(3, 200)], Heads(2, 1, 64))
    batch.q *= 1e4
    torch.testing.assert_close(
        attend_natively(batch, FULL_ATTENTION), batch.expected(FULL_ATTENTION), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_query_that_is_not_finite_leaves_others_alone_and_is_seen(dtype: torch.dtype) -> None:
    batch = build_batch([(1, 50), (1, 50)], Heads(2, 1, 64), dtype=dtype)
    batch.q[0, 0, 3] = torch.nan
    out = attend_natively(batch, FULL_ATTENTION)
    assert out[0, 0].isnan().all()
    assert out[0, 1].isfinite().all() and out[1].isfinite().all()
