"""The numbers of sequences that decode steps are captured for."""

import pytest

from forebay_runtime.runner.graph_sizes import graph_sizes, size_for


@pytest.mark.parametrize(
    ("max_num_seqs", "sizes"),
    [
        pytest.param(1, (1,), id="one at a time"),
        pytest.param(3, (1, 2, 3), id="the most is a size of its own"),
        pytest.param(8, (1, 2, 4, 8), id="eight"),
        pytest.param(20, (1, 2, 4, 8, 16, 20), id="between two eighths"),
        pytest.param(40, (1, 2, 4, 8, 16, 24, 32, 40), id="every eighth"),
    ],
)
def test_sizes_lie_close_where_steps_are_short(max_num_seqs: int, sizes: tuple[int, ...]) -> None:
    assert graph_sizes(max_num_seqs) == sizes


def test_past_256_every_sixteenth_is_a_size() -> None:
    assert graph_sizes(300)[-4:] == (256, 272, 288, 300)
    assert len(graph_sizes(1024)) < 90


@pytest.mark.parametrize("max_num_seqs", [1, 2, 5, 8, 9, 64, 300])
def test_every_number_of_sequences_has_the_least_size_that_holds_it(max_num_seqs: int) -> None:
    sizes = graph_sizes(max_num_seqs)
    for num_seqs in range(1, max_num_seqs + 1):
        assert size_for(num_seqs, sizes) == min(size for size in sizes if size >= num_seqs)
