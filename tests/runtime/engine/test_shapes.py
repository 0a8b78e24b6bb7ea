"""Rows are padded to few sizes, and what warm-up did not meet is counted."""

from forebay_runtime.models.row_padding import padded_size, padded_sizes
from forebay_runtime.runner.shape_log import ShapeLog


def test_sizes_are_exact_up_to_eight_and_then_four_an_octave() -> None:
    assert list(padded_sizes(64)) == [
        *range(1, 9),
        *(10, 12, 14, 16),
        *(20, 24, 28, 32),
        *(40, 48, 56, 64),
    ]


def test_padding_adds_at_most_a_quarter_and_is_stable() -> None:
    for num_rows in range(1, 5_000):
        size = padded_size(num_rows)
        assert num_rows <= size <= num_rows * 1.25
        assert padded_size(size) == size


def test_the_sizes_up_to_a_number_are_those_it_can_be_padded_to() -> None:
    for most in (1, 5, 8, 9, 100, 2_047):
        assert set(padded_sizes(most)) == {padded_size(n) for n in range(1, most + 1)}


def test_only_what_is_new_after_warm_up_is_cold_and_counts_once() -> None:
    shapes = ShapeLog()
    shapes.note("tokens", 8)
    shapes.end_warm_up()
    for kind, size in (("tokens", 8), ("tokens", 9), ("tokens", 9), ("logits", 8)):
        shapes.note(kind, size)
    assert shapes.num_cold == 2
