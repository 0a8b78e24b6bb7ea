"""The block pool counts each block's holders, keeps what free blocks hold, and notices mistakes."""

from collections.abc import Callable

import pytest

from forebay_runtime.prefix import Prefix, PrefixTree
from forebay_runtime.scheduling.blocks import BlockPool, IntegrityError


def prefixes(number: int, salt: str = "") -> list[Prefix]:
    """A chain of full blocks of four tokens."""
    tree, chain = PrefixTree(), []
    for index in range(number):
        chain.append(tree.extend(chain[-1] if chain else salt, (index,) * 4))
    return chain


def publish(pool: BlockPool, chain: list[Prefix]) -> list[int]:
    block_ids = pool.allocate(len(chain))
    for block_id, prefix in zip(block_ids, chain, strict=True):
        pool.publish(block_id, prefix)
    return block_ids


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


def test_a_published_block_is_found_while_it_is_held_and_after() -> None:
    pool, (prefix,) = BlockPool(4, 4), prefixes(1)
    (block_id,) = publish(pool, [prefix])
    assert pool.find(prefix) == block_id
    pool.release([block_id])
    assert (pool.find(prefix), pool.num_free_blocks) == (block_id, 4)
    pool.share([block_id])
    assert (pool.num_holders(block_id), pool.num_free_blocks) == (1, 3)
    pool.check_integrity([[block_id]])


def test_a_shared_block_is_free_only_after_its_last_holder_left() -> None:
    pool = BlockPool(2, 4)
    block_ids = publish(pool, prefixes(1))
    pool.share(block_ids)
    pool.check_integrity([block_ids, block_ids])
    pool.release(block_ids)
    assert pool.num_free_blocks == 1
    pool.release(block_ids)
    assert pool.num_free_blocks == 2


def test_of_two_equal_blocks_the_first_serves_and_the_second_is_never_shared() -> None:
    pool, (prefix,) = BlockPool(2, 4), prefixes(1)
    first, second = publish(pool, [prefix]), publish(pool, [prefix])
    assert [pool.find(prefix)] == first
    with pytest.raises(IntegrityError, match="not published"):
        pool.share(second)
    pool.check_integrity([first, second])


def test_the_end_of_a_prefix_goes_before_its_beginning() -> None:
    pool, chain = BlockPool(4, 4), prefixes(4)
    pool.release(publish(pool, chain))
    found = []
    for _ in range(4):
        pool.allocate(1)
        found.append([pool.find(prefix) is not None for prefix in chain].count(True))
        assert [pool.find(prefix) is not None for prefix in chain[: found[-1]]] == [True] * found[
            -1
        ]
    assert found == [3, 2, 1, 0]


def test_what_was_let_go_longest_ago_goes_first_and_a_hit_makes_it_young() -> None:
    pool = BlockPool(3, 4)
    old, middle, young = prefixes(1, "old"), prefixes(1, "middle"), prefixes(1, "young")
    held = [publish(pool, chain) for chain in (old, middle, young)]
    for block_ids in held:
        pool.release(block_ids)
    pool.share(held[0])
    pool.release(held[0])
    pool.allocate(2)
    assert [pool.find(chain[0]) is not None for chain in (old, middle, young)] == [
        True,
        False,
        False,
    ]


def test_blocks_that_hold_nothing_go_before_any_that_do() -> None:
    pool, chain = BlockPool(3, 4), prefixes(1)
    kept = publish(pool, chain)
    unfinished = pool.allocate(1)
    pool.release(kept)
    pool.release(unfinished)
    assert (unfinished[0] in pool.allocate(2), pool.find(chain[0])) == (True, kept[0])


@pytest.mark.parametrize(
    ("misuse", "problem"),
    [
        pytest.param(lambda pool, _: pool.release([1]), "released but is not held", id="released"),
        pytest.param(lambda pool, _: pool.release([0, 0]), "is not held", id="released-twice"),
        pytest.param(lambda pool, _: pool.share([0]), "not published", id="shared-unpublished"),
        pytest.param(lambda pool, p: pool.publish(1, p[0]), "is not held", id="published-unheld"),
        pytest.param(
            lambda pool, p: [pool.publish(0, prefix) for prefix in p],
            "published as two",
            id="published-twice",
        ),
    ],
)
def test_misuse_is_noticed(
    misuse: Callable[[BlockPool, list[Prefix]], object], problem: str
) -> None:
    pool = BlockPool(3, 4)
    assert pool.allocate(1) == [0]
    with pytest.raises(IntegrityError, match=problem):
        misuse(pool, prefixes(2))


@pytest.mark.parametrize(
    ("held", "problem"),
    [
        pytest.param([[0, 1], [1]], "block 1 has 2 holders, and 1 counted", id="one-too-many"),
        pytest.param([[0]], "block 1 has 0 holders, and 1 counted", id="lost"),
        pytest.param([[0, 1, 2]], "block 2 has 1 holders, and 0 counted", id="stolen"),
    ],
)
def test_wrong_holders_are_noticed(held: list[list[int]], problem: str) -> None:
    pool = BlockPool(3, 4)
    assert pool.allocate(2) == [0, 1]
    pool.check_integrity([[0], [1]])
    with pytest.raises(IntegrityError, match=problem):
        pool.check_integrity(held)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        pytest.param(lambda pool: pool._free.pop(2), "block 2 .* lost or stolen", id="free-list"),
        pytest.param(lambda pool: pool._prefixes.clear(), "differ", id="prefixes"),
        pytest.param(lambda pool: pool._free.move_to_end(2), "goes for its place", id="order"),
        pytest.param(
            lambda pool: setattr(pool, "block_size", 8), "published but not full", id="not-full"
        ),
    ],
)
def test_damage_inside_is_noticed(damage: Callable[[BlockPool], object], problem: str) -> None:
    pool = BlockPool(3, 4)
    block_ids = publish(pool, prefixes(2))
    pool.release(block_ids[1:])
    pool.check_integrity([block_ids[:1]])
    damage(pool)
    with pytest.raises(IntegrityError, match=problem):
        pool.check_integrity([block_ids[:1]])


def test_equal_beginnings_are_one_object_and_others_are_not() -> None:
    tree = PrefixTree()
    first = tree.extend("", (1, 2))
    assert tree.extend("", (1, 2)) is first
    assert tree.extend("salt", (1, 2)) is not first
    assert tree.extend(first, (1, 2)) is not first
    assert tree.extend(first, (3, 4)) is tree.extend(first, (3, 4))


def test_beginnings_whose_hashes_collide_are_told_apart_by_their_tokens() -> None:
    tree, colliding = PrefixTree(), 2**61 - 1
    assert hash((0, 5)) == hash((colliding, 5))
    assert tree.extend("", (0, 5)) is not tree.extend("", (colliding, 5))


def test_prefixes_that_nothing_holds_are_forgotten_however_long() -> None:
    tree = PrefixTree()
    prefix = tree.extend("", (0,))
    for token_id in range(100_000):
        prefix = tree.extend(prefix, (token_id,))
    del prefix
    assert len(tree) == 0
