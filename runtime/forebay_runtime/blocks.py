"""The KV cache's blocks: which are free, and nothing else.

The scheduler takes and returns block ids; the tensors behind them belong to the runner. Imports no
torch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class IntegrityError(RuntimeError):
    """Blocks were lost, shared or returned twice: a bug, never a user's doing."""


class BlockPool:
    """Hands out block ids 0 … num_blocks - 1, each to one owner at a time.

    free + used == all holds between any two calls.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = deque(range(num_blocks))
        self._used: set[int] = set()

    @property
    def num_free_blocks(self) -> int:
        """Blocks that allocate could hand out now."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """The share of blocks in use, 0 … 1."""
        return len(self._used) / self.num_blocks

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold num_tokens."""
        return -(-num_tokens // self.block_size)

    def allocate(self, num_blocks: int) -> list[int]:
        """Take blocks off the free list.

        Raises: IntegrityError if there are too few; callers look at num_free_blocks first.
        """
        if num_blocks > len(self._free):
            raise IntegrityError(f"{num_blocks} blocks were asked of {len(self._free)} free ones")
        block_ids = [self._free.popleft() for _ in range(num_blocks)]
        self._used.update(block_ids)
        return block_ids

    def release(self, block_ids: Iterable[int]) -> None:
        """Put blocks back.

        Raises: IntegrityError if one is not in use.
        """
        for block_id in block_ids:
            if block_id not in self._used:
                raise IntegrityError(f"block {block_id} was released but is not in use")
            self._used.remove(block_id)
            self._free.append(block_id)

    def check_integrity(self, owned: Iterable[Iterable[int]]) -> None:
        """Check that free and used make up all blocks, and that owned are the used, each once.

        Raises: IntegrityError saying which blocks are wrong.
        """
        holders = [block_id for block_ids in owned for block_id in block_ids]
        if len(holders) != len(set(holders)):
            raise IntegrityError(f"blocks have more than one owner: {sorted(holders)}")
        if set(holders) != self._used:
            raise IntegrityError(f"blocks lost or stolen: {sorted(set(holders) ^ self._used)}")
        if sorted(self._free) != sorted(set(range(self.num_blocks)) - self._used):
            raise IntegrityError(f"the free list is wrong: {sorted(self._free)}")
