"""The KV cache's blocks: who holds how many, which are free, and what the free ones still hold.

The allocator takes, shares and returns block ids; the tensors behind them belong to the runner. A
full block is published under its prefix and then never written again. It stays published after its
last holder left, until its place is needed: the one that was let go longest ago goes first. Imports
no torch.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from forebay_runtime.prefix import Prefix


def num_blocks_in_window(window: int, num_step_tokens: int, block_size: int) -> int:
    """The most blocks that a step's tokens attend to, each to its window.

    One more than those tokens fill, as what is seen need not begin where a block does.
    """
    return -(-(window - 1 + num_step_tokens) // block_size) + 1


class IntegrityError(RuntimeError):
    """Blocks were lost, written by two or returned twice: a bug, never a user's doing."""


class BlockPool:
    """Hands out block ids 0 … num_blocks - 1, and counts each one's holders.

    A block is free if it has no holder; free + held == all between any two calls. Among the free,
    those that hold nothing worth keeping come first.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._num_holders = [0] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._published: dict[Prefix, int] = {}
        self._prefixes: dict[int, Prefix] = {}

    @property
    def num_free_blocks(self) -> int:
        """Blocks that allocate could hand out now, published ones included."""
        return len(self._free)

    @property
    def num_held_blocks(self) -> int:
        """Blocks with a holder, each counted once."""
        return self.num_blocks - len(self._free)

    @property
    def usage(self) -> float:
        """The share of blocks with a holder, 0 … 1."""
        return self.num_held_blocks / self.num_blocks

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold num_tokens."""
        return -(-num_tokens // self.block_size)

    def num_holders(self, block_id: int) -> int:
        """Requests that hold a block."""
        return self._num_holders[block_id]

    def prefix_of(self, block_id: int) -> Prefix | None:
        """What a block is published as."""
        return self._prefixes.get(block_id)

    def find(self, prefix: Prefix) -> int | None:
        """The block that is published as prefix, held or free."""
        return self._published.get(prefix)

    def allocate(self, num_blocks: int) -> list[int]:
        """Take free blocks, and forget what they were published as.

        Raises: IntegrityError if there are too few; callers look at num_free_blocks first.
        """
        if num_blocks > len(self._free):
            raise IntegrityError(f"{num_blocks} blocks were asked of {len(self._free)} free ones")
        return [self._take_oldest() for _ in range(num_blocks)]

    def _take_oldest(self) -> int:
        block_id, _ = self._free.popitem(last=False)
        prefix = self._prefixes.pop(block_id, None)
        if prefix is not None:
            del self._published[prefix]
        self._num_holders[block_id] = 1
        return block_id

    def share(self, block_ids: Iterable[int]) -> None:
        """Hold published blocks once more.

        Raises: IntegrityError if one is not published, so may be written.
        """
        for block_id in block_ids:
            if block_id not in self._prefixes:
                raise IntegrityError(f"block {block_id} was shared but is not published")
            if self._num_holders[block_id] == 0:
                del self._free[block_id]
            self._num_holders[block_id] += 1

    def release(self, block_ids: Sequence[int]) -> None:
        """Hold a request's blocks once less, the last first: the end of a prefix goes before it.

        Raises: IntegrityError if one is not held.
        """
        for block_id in reversed(block_ids):
            if self._num_holders[block_id] == 0:
                raise IntegrityError(f"block {block_id} was released but is not held")
            self._num_holders[block_id] -= 1
            if self._num_holders[block_id] == 0:
                self._free[block_id] = None
                if block_id not in self._prefixes:
                    self._free.move_to_end(block_id, last=False)

    def publish(self, block_id: int, prefix: Prefix) -> None:
        """Let others share a full, computed block; of two equal ones the first serves.

        Raises: IntegrityError if nobody holds it, or if it was published as something else.
        """
        if self._num_holders[block_id] == 0:
            raise IntegrityError(f"block {block_id} was published but is not held")
        if self._prefixes.get(block_id, prefix) is not prefix:
            raise IntegrityError(f"block {block_id} was published as two prefixes")
        if self._published.setdefault(prefix, block_id) == block_id:
            self._prefixes[block_id] = prefix

    def check_integrity(self, held: Iterable[Iterable[int]]) -> None:
        """Check that held are the holders, that the rest are free, and what is published.

        Raises: IntegrityError saying which blocks are wrong.
        """
        holders = Counter(block_id for block_ids in held for block_id in block_ids)
        for block_id, num_holders in enumerate(self._num_holders):
            if holders[block_id] != num_holders:
                raise IntegrityError(
                    f"block {block_id} has {holders[block_id]} holders, and {num_holders} counted"
                )
            if (block_id in self._free) != (num_holders == 0):
                raise IntegrityError(f"block {block_id} of {num_holders} holders is lost or stolen")
        self._check_published()

    def _check_published(self) -> None:
        if self._prefixes != {block_id: prefix for prefix, block_id in self._published.items()}:
            raise IntegrityError(f"prefixes and blocks differ: {sorted(self._prefixes)}")
        for block_id, prefix in self._prefixes.items():
            if len(prefix.token_ids) != self.block_size:
                raise IntegrityError(f"block {block_id} is published but not full")
        is_published = [block_id in self._prefixes for block_id in self._free]
        if is_published != sorted(is_published):
            raise IntegrityError("a free block goes for its place while an empty one is there")
