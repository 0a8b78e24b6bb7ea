"""Paged attention over ragged batches is what the reference says, in every mix and odd size."""

from dataclasses import dataclass

import pytest
import torch

from forebay_kernels import reference
from forebay_kernels.attention_rule import AttentionRule
from forebay_kernels.kv_layer import KvLayer
from forebay_kernels.portable import attention
from forebay_kernels.ragged import Ragged

BLOCK_SIZE = 4
NUM_BLOCKS = 64


@dataclass(frozen=True)
class Case:
    """Sequences as (query tokens, tokens in all)."""

    spans: tuple[tuple[int, int], ...]
    num_heads: int = 6
    num_kv_heads: int = 3
    head_dim: int = 10


CASES = {
    "one-decode": Case(((1, 1),)),
    "one-decode-with-context": Case(((1, 9),)),
    "decodes-of-one-length": Case(((1, 8), (1, 8))),
    "decodes-of-like-lengths": Case(((1, 5), (1, 7), (1, 8))),
    "decodes-of-very-unlike-lengths": Case(((1, 1), (1, 3), (1, 60), (1, 61))),
    "decodes-out-of-order": Case(((1, 60), (1, 2), (1, 59))),
    "whole-prompt": Case(((7, 7),)),
    "chunk-of-a-prompt": Case(((5, 17),)),
    "last-token-of-a-prompt-after-a-longer-one": Case(((6, 6), (1, 13))),
    "mixed": Case(((1, 3), (1, 30), (4, 4), (9, 21), (2, 2))),
    "one-head": Case(((1, 5), (3, 3)), num_heads=1, num_kv_heads=1, head_dim=2),
    "one-kv-head": Case(((1, 5), (3, 3)), num_heads=5, num_kv_heads=1, head_dim=7),
    "as-many-kv-heads": Case(((1, 5), (3, 8)), num_heads=3, num_kv_heads=3, head_dim=64),
}


def build_ragged(case: Case, generator: torch.Generator) -> Ragged:
    """Sequences over blocks in random order, none shared."""
    num_blocks = [-(-seq_len // BLOCK_SIZE) for _, seq_len in case.spans]
    order = torch.randperm(NUM_BLOCKS, generator=generator).int()
    tables = torch.zeros(len(case.spans), max(num_blocks), dtype=torch.int32)
    slots = []
    for index, ((query_len, seq_len), count) in enumerate(zip(case.spans, num_blocks, strict=True)):
        tables[index, :count], order = order[:count], order[count:]
        positions = torch.arange(seq_len - query_len, seq_len)
        slots.append(
            tables[index, positions // BLOCK_SIZE].long() * BLOCK_SIZE + positions % BLOCK_SIZE
        )
    return Ragged.of(
        [query_len for query_len, _ in case.spans],
        [seq_len for _, seq_len in case.spans],
        tables,
        torch.cat(slots),
    )


RULES = {
    "full": AttentionRule(),
    "scaled": AttentionRule(scale=0.07),
    "capped": AttentionRule(softcap=1.5, scale=0.4),
    "window-of-one": AttentionRule(window=1),
    "window-within-a-block": AttentionRule(window=3),
    "window-of-odd-blocks": AttentionRule(window=13),
    "window-of-whole-blocks": AttentionRule(window=8),
    "window-over-all": AttentionRule(window=500),
    "window-and-cap": AttentionRule(window=6, softcap=2.0),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_attention_is_the_references(case: Case, rule: AttentionRule, dtype: torch.dtype) -> None:
    check(case, rule, dtype)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("window", [None, 5])
def test_sinks_take_their_part_and_give_nothing(case: Case, window: int | None) -> None:
    sinks = torch.randn(case.num_heads)
    check(case, AttentionRule(window=window, sinks=sinks), torch.float32)
    check(case, AttentionRule(window=window, softcap=2.0, sinks=sinks), torch.bfloat16)


def check(case: Case, rule: AttentionRule, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    ragged = build_ragged(case, generator)
    num_tokens = sum(ragged.query_lens)
    kv_shape = (NUM_BLOCKS, BLOCK_SIZE, case.num_kv_heads, case.head_dim)
    layer = KvLayer(*(torch.randn(kv_shape, generator=generator).to(dtype) for _ in range(2)))
    q = torch.randn(num_tokens, case.num_heads, case.head_dim, generator=generator).to(dtype)
    plan = attention.AttentionPlan(ragged, BLOCK_SIZE, q.dtype)
    out = attention.paged_attention(q, layer, plan, rule)
    expected = reference.paged_attention(q, layer, ragged, rule)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(out, expected, atol=tolerance, rtol=tolerance)


def test_rows_past_the_sequences_are_padding_and_zero() -> None:
    ragged = build_ragged(CASES["mixed"], torch.Generator().manual_seed(0))
    num_tokens = sum(ragged.query_lens)
    q = torch.randn(num_tokens + 3, 6, 10)
    cache = torch.randn(NUM_BLOCKS, BLOCK_SIZE, 3, 10)
    plan = attention.AttentionPlan(ragged, BLOCK_SIZE, q.dtype)
    out = attention.paged_attention(q, KvLayer(cache, cache), plan)
    assert out.shape == q.shape
    assert not out[num_tokens:].any()


def test_short_decodes_do_not_pay_for_long_ones() -> None:
    case = Case(((1, 4), (1, 8), (1, 40), (1, 60)))
    plan = attention.AttentionPlan(build_ragged(case, torch.Generator()), BLOCK_SIZE, torch.float32)
    spans = [(span.start, span.end, span.num_keys) for span in plan.spans()]
    assert spans == [(0, 2, 8), (2, 4, 60)]


def test_what_another_sequence_holds_is_never_seen() -> None:
    case = Case(((1, 6), (1, 7), (3, 5)))
    generator = torch.Generator().manual_seed(0)
    ragged = build_ragged(case, generator)
    q = torch.randn(5, 6, 10, generator=generator)
    cache = torch.randn(NUM_BLOCKS, BLOCK_SIZE, 3, 10, generator=generator)
    plan = attention.AttentionPlan(ragged, BLOCK_SIZE, q.dtype)
    before = attention.paged_attention(q, KvLayer(cache, cache), plan)
    seen = torch.zeros(NUM_BLOCKS * BLOCK_SIZE, dtype=torch.bool)
    for table, seq_len in zip(ragged.block_tables, ragged.seq_lens, strict=True):
        positions = torch.arange(seq_len)
        seen[table[positions // BLOCK_SIZE].long() * BLOCK_SIZE + positions % BLOCK_SIZE] = True
    cache.view(-1, 3, 10)[~seen] += 100
    assert torch.equal(attention.paged_attention(q, KvLayer(cache, cache), plan), before)


@pytest.mark.parametrize("window", [1, 5, 8])
def test_blocks_that_fell_out_of_the_window_are_never_read(window: int) -> None:
    case = Case(((1, 9), (1, 30), (1, 61), (5, 40), (3, 3)))
    generator = torch.Generator().manual_seed(0)
    ragged = build_ragged(case, generator)
    q = torch.randn(11, 6, 10, generator=generator)
    cache = torch.randn(NUM_BLOCKS, BLOCK_SIZE, 3, 10, generator=generator)
    rule = AttentionRule(window=window)

    def attend() -> torch.Tensor:
        plan = attention.AttentionPlan(ragged, BLOCK_SIZE, q.dtype)
        return attention.paged_attention(q, KvLayer(cache, cache), plan, rule)

    before = attend()
    free = torch.ones(NUM_BLOCKS, dtype=torch.bool)
    for index, (query_len, seq_len) in enumerate(case.spans):
        first = max(0, seq_len - query_len + 1 - window) // BLOCK_SIZE
        free[ragged.block_tables[index, first : -(-seq_len // BLOCK_SIZE)].long()] = False
    # Others write into such blocks, whatever they like; the table names some block in their place.
    cache[free] = float("nan")
    for index, (query_len, seq_len) in enumerate(case.spans):
        first = max(0, seq_len - query_len + 1 - window) // BLOCK_SIZE
        ragged.block_tables[index, :first] = int(free.nonzero()[0, 0])
    assert torch.equal(attend(), before)


def test_a_long_prompt_under_a_window_is_attended_in_tiles() -> None:
    length, window = 600, 20
    num_blocks = length // BLOCK_SIZE
    tables = torch.randperm(num_blocks).int()[None]
    ragged = Ragged.of((length,), (length,), tables, torch.arange(length))
    q = torch.randn(length, 2, 4)
    cache = torch.randn(num_blocks, BLOCK_SIZE, 1, 4)
    rule = AttentionRule(window=window)
    plan = attention.AttentionPlan(ragged, BLOCK_SIZE, q.dtype)
    out = attention.paged_attention(q, KvLayer(cache, cache), plan, rule)
    expected = reference.paged_attention(q, KvLayer(cache, cache), ragged, rule)
    torch.testing.assert_close(out, expected)
    assert [(s.start, s.end) for s in plan.spans(window)] == [(0, 256), (256, 512), (512, 600)]
    assert max(span.num_keys for span in plan.spans(window)) < 256 + window + BLOCK_SIZE


def test_a_soft_cap_holds_few_scores_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ragged = build_ragged(CASES["mixed"], torch.Generator().manual_seed(0))
    q = torch.randn(sum(ragged.query_lens), 6, 10)
    cache = torch.randn(NUM_BLOCKS, BLOCK_SIZE, 3, 10)
    rule = AttentionRule(softcap=1.5)
    plan = attention.AttentionPlan(ragged, BLOCK_SIZE, q.dtype)
    whole = attention.paged_attention(q, KvLayer(cache, cache), plan, rule)
    monkeypatch.setattr(attention, "_MOST_SCORES", 6 * 21 * 2)
    in_tiles = attention.paged_attention(q, KvLayer(cache, cache), plan, rule)
    torch.testing.assert_close(in_tiles, whole)


def test_heads_that_do_not_divide_are_refused() -> None:
    ragged = build_ragged(CASES["one-decode"], torch.Generator())
    cache = torch.zeros(NUM_BLOCKS, BLOCK_SIZE, 3, 10)
    with pytest.raises(ValueError, match="4 query heads do not divide over 3 KV heads"):
        reference.paged_attention(torch.zeros(1, 4, 10), KvLayer(cache, cache), ragged)
