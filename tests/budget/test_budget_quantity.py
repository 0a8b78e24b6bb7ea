"""Kubernetes quantities and sizes for people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_budget.quantity import format_bytes, parse_quantity, to_quantity

GIB = 1024**3


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        pytest.param("24Gi", 24 * GIB, id="binary units"),
        pytest.param("16G", 16 * 10**9, id="decimal units"),
        pytest.param("1.5Gi", 3 * GIB // 2, id="fractions"),
        pytest.param("512", 512, id="plain bytes"),
        pytest.param("1e9", 10**9, id="an exponent"),
        pytest.param("1E", 10**18, id="E alone is exa, not an exponent"),
        pytest.param("1500m", 2, id="thousandths are rounded up to whole bytes"),
        pytest.param("2Ei", 2 * 1024**6, id="exbibytes, which begin like an exponent"),
        pytest.param("1500000001n", 2, id="billionths"),
        pytest.param("2500000u", 3, id="millionths"),
        pytest.param("+5Gi", 5 * GIB, id="a plus sign"),
        pytest.param("0", 0, id="nothing"),
        pytest.param(" 1Ki ", 1024, id="spaces around"),
    ],
)
def test_a_quantity_is_read(text: str, num_bytes: int) -> None:
    assert parse_quantity(text) == num_bytes


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param(
            "24GB", r"unknown unit 'GB'; known are k, M, G, .*Ki, Mi, Gi, ", id="an unknown unit"
        ),
        pytest.param("24gi", "unknown unit 'gi'", id="a unit in the wrong case"),
        pytest.param("-1Gi", "not an amount", id="a negative amount"),
        pytest.param("", "not an amount", id="nothing at all"),
        pytest.param("Gi", "not an amount", id="a unit alone"),
        pytest.param("1 Gi", "not an amount", id="a space within"),
        pytest.param("٣Gi", "not an amount", id="digits of another script"),
        pytest.param(
            "1e999999999", "beyond the range", id="an exponent that would take all memory"
        ),
        pytest.param("9" * 10_000, "not an amount", id="more digits than anyone writes"),
    ],
)
def test_what_is_no_quantity_is_refused_in_a_sentence(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        pytest.param(269_030_016, "257Mi", id="rounded up to the unit with three digits"),
        pytest.param(26 * GIB, "26Gi", id="exact in a larger unit"),
        pytest.param(99 * GIB + 1, "101377Mi", id="a smaller unit where rounding would tell"),
        pytest.param(0, "0", id="nothing"),
        pytest.param(17, "17", id="bytes"),
    ],
)
def test_a_quantity_is_written(num_bytes: int, text: str) -> None:
    assert to_quantity(num_bytes) == text


@given(st.integers(0, 2**60))
def test_a_written_quantity_reads_back_as_at_least_as_much_and_within_a_hundredth(
    size: int,
) -> None:
    assert size <= parse_quantity(to_quantity(size)) <= size * 101 // 100 + 1


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (22_684_344_320, "21.1 GiB"),
        (269_030_016, "257 MiB"),
        (3 * 1024**4, "3.0 TiB"),
        (2048, "2 KiB"),
        (17, "17 bytes"),
        (0, "0 bytes"),
    ],
)
def test_sizes_are_written_for_people(num_bytes: int, text: str) -> None:
    assert format_bytes(num_bytes) == text
