"""The block pool hands out each block to one owner at a time, and notices when it does not."""

import pytest

from forebay_runtime.blocks import BlockPool, IntegrityError


def test_tokens_round_up_to_whole_blocks() -> None:
    pool = BlockPool(num_blocks=4, block_size=16)
    assert [pool.num_blocks_for(n) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_what_is_released_can_be_allocated_again() -> None:
    pool = BlockPool(num_blocks=3, block_size=16)
    block_ids = pool.allocate(3)
    assert (pool.num_free_blocks, pool.usage) == (0, 1.0)
    pool.release(block_ids[:2])
    assert sorted(pool.allocate(2)) == sorted(block_ids[:2])


def test_more_than_is_free_is_refused_and_takes_nothing() -> None:
    pool = BlockPool(num_blocks=3, block_size=16)
    with pytest.raises(IntegrityError, match="4 blocks were asked of 3"):
        pool.allocate(4)
    pool.check_integrity([])


def test_a_block_released_twice_is_noticed() -> None:
    pool = BlockPool(num_blocks=3, block_size=16)
    block_ids = pool.allocate(1)
    pool.release(block_ids)
    with pytest.raises(IntegrityError, match="not in use"):
        pool.release(block_ids)


@pytest.mark.parametrize(
    ("owned", "problem"),
    [
        pytest.param([[0, 1], [1]], "more than one owner", id="shared"),
        pytest.param([[0]], "lost or stolen", id="lost"),
        pytest.param([[0, 1, 2]], "lost or stolen", id="stolen"),
    ],
)
def test_wrong_owners_are_noticed(owned: list[list[int]], problem: str) -> None:
    pool = BlockPool(num_blocks=3, block_size=16)
    assert pool.allocate(2) == [0, 1]
    pool.check_integrity([[0], [1]])
    with pytest.raises(IntegrityError, match=problem):
        pool.check_integrity(owned)
