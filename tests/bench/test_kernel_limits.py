"""What cpu_kernels.py measures: limits by real loops, shares by arithmetic, parts at tiny sizes."""

from pathlib import Path

import pytest
import torch
from cpu_parts import attention, products, whole_model
from cpu_parts.limits import KINDS, Limits, compile_loops, measure_limits
from cpu_parts.row import Row, table_of, table_of_limits
from cpu_parts.step_parts import LastStep, Timed, table_of_parts

from served_model import save_served_model

LIMITS = Limits(2, {2**20: 4e9, 2**30: 2e9}, {"int8": 8e9, "bf16": 0.0}, {"int8": 6e9, "bf16": 3e9})
ROW = Row("p", "w", 1, 1e-3, 10**6, 2 * 10**6, "int8", torch_seconds=3e-3)


def test_a_row_is_held_to_the_rate_of_both_buffers_and_to_the_better_peak() -> None:
    assert ROW.shares(LIMITS) == {
        "bandwidth": 0.5,
        "bandwidth_at_weights_size": 0.25,
        "peak": 0.25,
    }
    assert LIMITS.peak("bf16") == 3e9


def test_a_table_row_has_its_times_and_shares_under_their_heads() -> None:
    head, _, line = table_of([ROW], LIMITS)
    assert line == "| w | 1 | 1000 | 1.0 | 50% | 25% | 2 | 25% of int8 | 3.00 |"
    assert head.count("|") == line.count("|")


def test_the_limits_table_has_both_buffers_and_every_kind() -> None:
    text = "\n".join(table_of_limits([LIMITS]))
    assert "| 2 | read of 1024 MiB, GB/s | 2.0 | – |" in text
    assert "| 2 | int8, Gop/s | 8 | 6 |" in text


@pytest.mark.component
@pytest.mark.parametrize("num_threads", [1, 3], ids=["alone", "more threads than a stride has"])
def test_the_loops_find_a_rate_and_a_peak_on_this_machine(num_threads: int) -> None:
    loops = compile_loops()
    assert loops is not None
    limits = measure_limits(loops, num_threads, 2**20 + 4, big_bytes=2**21)
    assert min(limits.read_bytes.values()) > 1e8
    assert limits.peaks["float32"] > 1e9
    assert set(limits.torch_peaks) == {*KINDS}


def test_without_a_compiler_torchs_operators_are_the_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert compile_loops() is None
    assert "no-such-compiler" in capsys.readouterr().out
    limits = measure_limits(None, 1, 2**16, big_bytes=2**17)
    assert limits.peaks == {}
    assert limits.peak("float32") == limits.torch_peaks["float32"] > 0


@pytest.fixture
def small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [products.Shape("a", 40, 64, 3), products.Shape("head", 70, 64, 1)]
    monkeypatch.setitem(products.MODELS, "small", shapes)
    monkeypatch.setattr(products, "_ALL_COPIES_BYTES", 2**14)


@pytest.mark.usefixtures("small_products")
def test_every_format_is_timed_and_summed_over_a_step() -> None:
    rows = list(products.measure("small", products.FORMATS, (1, 17), has_torch=True))
    assert len(rows) == len(products.FORMATS) * 2 * 3
    first, second, *_ = rows[::2]
    whole = next(row for row in rows if row.what.startswith("**all") and row.batch == 1)
    assert whole.num_operations == 2 * 64 * (3 * 40 + 70)
    assert whole.seconds == pytest.approx(3 * first.seconds + second.seconds)
    assert all(row.seconds > 0 and row.torch_seconds for row in rows)


def test_attention_is_timed_over_a_cache_of_each_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "HEADS", (attention.Heads("small", 4, 2, 16),))
    monkeypatch.setattr(attention, "_CACHE_BYTES", 1)
    rows = list(attention.measure(["small"], [torch.float16], has_torch=True))
    assert [row.batch for row in rows] == [1, 8, 32, 1]
    assert rows[1].num_bytes == 2 * 8 * 1024 * 2 * 16 * 2
    assert rows[3].num_operations == 4 * 4 * 16 * sum(range(1537, 2049))
    assert all(row.seconds > 0 and row.torch_seconds for row in rows)


@pytest.mark.component
def test_steps_of_a_model_count_its_weights_its_cache_and_its_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_model, "_KV_BYTES", 2**20)
    monkeypatch.setattr(whole_model, "_PROMPT_TOKENS", 32)
    monkeypatch.setattr(whole_model, "_NUM_TOKENS", 60)
    save_served_model(tmp_path)
    flags = whole_model.Flags(dtype="float32")
    rows, parts = whole_model.measure(tmp_path, "float32", (1, 3), (8,), flags)
    one, three, prompt = rows
    layers = 2 * 32 * ((4 + 2 + 2 + 4) * 8 + 3 * 64)
    assert prompt.num_operations == 2 * 32 * layers
    kv_bytes = 2 * 2 * 2 * 8 * 4
    assert three.num_bytes - one.num_bytes == pytest.approx(2 * 8 * kv_bytes, abs=8)
    assert three.num_operations == 3 * one.num_operations
    assert {timed.step.partition(" sequences")[0] for timed in parts} == {
        "1 tokens of 1",
        "3 tokens of 3",
        "32 tokens of 1",
    }
    assert {"all", "Attention", "LinearProduct"} <= {timed.part for timed in parts}


def test_a_parts_share_is_of_its_own_step() -> None:
    found = [Timed("a", "all", 0.01, 0.02), Timed("a", "b", 0.002), Timed("c", "all", 1, 2)]
    assert table_of_parts(found)[2:] == [
        "| a | all | 10.00 | 100% | 20.00 |",
        "| a | b | 2.00 | 20% |  |",
        "| c | all | 1000.00 | 100% | 2000.00 |",
    ]


def test_a_step_that_was_not_recorded_has_no_parts() -> None:
    assert LastStep().parts() == []
