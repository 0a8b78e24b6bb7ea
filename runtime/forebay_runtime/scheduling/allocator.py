"""A request's KV blocks: found in the cache, grown by the step, let go behind the window, returned.

It joins requests and the block pool, and decides nothing about whose turn it is. Where every layer
of the model attends to a window only, blocks that fell out of it are let go while the request runs,
so what it holds is bounded by the window and one step's chunk. Imports no torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from forebay_runtime.prefix import Prefix, PrefixTree
from forebay_runtime.request import Request
from forebay_runtime.scheduling.blocks import BlockPool, IntegrityError, num_blocks_in_window


@dataclass(frozen=True)
class Hit:
    """What the cache has of a request: block_ids, after blocks that its window does not reach."""

    num_skipped_blocks: int = 0
    block_ids: tuple[int, ...] = ()

    @property
    def num_blocks(self) -> int:
        """Blocks that need not be computed."""
        return self.num_skipped_blocks + len(self.block_ids)


class Allocator:
    """The blocks of running requests, over one pool."""

    def __init__(self, pool: BlockPool, window: int | None, has_prefix_cache: bool) -> None:
        """window: the tokens that each token attends to, itself included, in every layer."""
        self.pool = pool
        self.window = window
        self.has_prefix_cache = has_prefix_cache
        self._tree = PrefixTree()
        self._coming: dict[Prefix, Request] = {}

    def find_hit(self, request: Request) -> Hit:
        """The longest beginning in the cache, of whole blocks and short of the last known token."""
        if not self.has_prefix_cache or not request.takes_prefix_hits:
            return Hit()
        found: list[int | None] = []
        num_blocks, num_in_a_row = 0, 0
        for prefix in self._prefixes(request, (request.num_tokens - 1) // self.pool.block_size):
            found.append(self.pool.find(prefix))
            num_in_a_row = num_in_a_row + 1 if found[-1] is not None else 0
            if num_in_a_row == 0 and self.window is None:
                break
            if num_in_a_row >= len(found) - self._num_blocks_behind(len(found)):
                num_blocks = len(found)
        num_skipped = self._num_blocks_behind(num_blocks)
        kept = found[num_skipped:num_blocks]
        return Hit(num_skipped, tuple(block_id for block_id in kept if block_id is not None))

    def find_computer(self, request: Request, hit: Hit) -> Request | None:
        """Who runs and will publish most of what a request lacks beside a hit, if anyone will."""
        lacked = request.prefixes[hit.num_blocks :]
        coming = tuple(takewhile(self._coming.__contains__, lacked))
        num_tokens_lacked = request.num_tokens - hit.num_blocks * self.pool.block_size
        if 2 * len(coming) * self.pool.block_size <= num_tokens_lacked:
            return None
        return self._coming[coming[0]]

    def _prefixes(self, request: Request, num_blocks: int) -> list[Prefix]:
        """The first num_blocks full blocks of a request as prefixes; each is made once."""
        prefixes, size = request.prefixes, self.pool.block_size
        parent: Prefix | str = prefixes[-1] if prefixes else request.cache_salt
        for start in range(len(prefixes) * size, num_blocks * size, size):
            parent = self._tree.extend(parent, tuple(request.token_ids(start, start + size)))
            prefixes.append(parent)
        return prefixes[:num_blocks]

    def _num_blocks_behind(self, num_full_blocks: int) -> int:
        """The blocks that no token after so many full ones attends to."""
        return self._num_blocks_unseen(num_full_blocks * self.pool.block_size)

    def _num_blocks_unseen(self, num_tokens: int) -> int:
        """The blocks that no token from the num_tokens-th on attends to."""
        if self.window is None:
            return 0
        return max(0, num_tokens - self.window + 1) // self.pool.block_size

    def begin(self, request: Request, hit: Hit) -> None:
        """Give a waiting request what the cache has of it."""
        self.pool.share(hit.block_ids)
        # What the window does not reach is never read; the table has a valid id there all the same.
        request.block_ids.extend(hit.block_ids[:1] * hit.num_skipped_blocks + hit.block_ids)
        request.num_unheld_blocks = hit.num_skipped_blocks
        request.num_computed_tokens = hit.num_blocks * self.pool.block_size
        for prefix in request.prefixes[hit.num_blocks :]:
            self._coming.setdefault(prefix, request)

    def grow(self, request: Request, num_tokens: int) -> int:
        """Give a request blocks for as many of its next num_tokens as fit; returns how many."""
        num_held, size = len(request.block_ids), self.pool.block_size
        num_launched = request.num_launched_tokens
        if num_launched + num_tokens <= num_held * size:
            return num_tokens
        num_slots = (num_held + self.pool.num_free_blocks) * size
        num_fitting = min(num_tokens, num_slots - num_launched)
        num_blocks = self.pool.num_blocks_for(num_launched + num_fitting)
        if num_blocks > num_held:
            request.block_ids.extend(self.pool.allocate(num_blocks - num_held))
        return num_fitting

    def note_computed(self, request: Request, num_tokens: int) -> None:
        """Say that a request's tokens up to num_tokens are computed: publish, and let go."""
        size = self.pool.block_size
        first, end = request.num_computed_tokens // size, num_tokens // size
        request.num_computed_tokens = num_tokens
        request.num_drafted_tokens = min(request.num_drafted_tokens, num_tokens)
        if end > first and self.has_prefix_cache:
            prefixes = self._prefixes(request, end)
            for block_id, prefix in zip(request.block_ids[first:], prefixes[first:], strict=False):
                self.pool.publish(block_id, prefix)
                self._coming.pop(prefix, None)
        if self.window is None:
            return
        num_unseen = self._num_blocks_unseen(num_tokens)
        if num_unseen > request.num_unheld_blocks:
            self.pool.release(request.block_ids[request.num_unheld_blocks : num_unseen])
            request.num_unheld_blocks = num_unseen

    def release(self, request: Request) -> None:
        """Take all blocks back; the request would be computed from its first token again."""
        self.pool.release(request.held_block_ids)
        for prefix in request.prefixes[request.num_computed_tokens // self.pool.block_size :]:
            if self._coming.get(prefix) is request:
                del self._coming[prefix]
        del request.block_ids[:]
        request.num_unheld_blocks = 0
        request.num_computed_tokens = request.num_flying_tokens = 0
        request.num_flying_drafts = request.num_drafted_tokens = 0

    def num_blocks_at_once(self, num_tokens: int, num_step_tokens: int, num_unseen: int) -> int:
        """The most blocks that a request holds on its way to num_tokens, num_step_tokens a step.

        num_unseen: its first blocks, which it will not hold.
        """
        num_blocks = self.pool.num_blocks_for(num_tokens) - num_unseen
        if self.window is None:
            return num_blocks
        # With a smaller pool the steps become smaller.
        num_seen = num_blocks_in_window(self.window, num_step_tokens, self.pool.block_size)
        return min(num_blocks, num_seen, self.pool.num_blocks)

    def num_free_blocks_beside(self, hit: Hit, leaving: Iterable[Request]) -> int:
        """The blocks that would be free if a hit were taken and some requests had left."""
        given_back = Counter(block_id for r in leaving for block_id in r.held_block_ids)
        num_back = sum(self.pool.num_holders(id_) == count for id_, count in given_back.items())
        num_taken = sum(self.pool.num_holders(id_) == given_back[id_] for id_ in hit.block_ids)
        return self.pool.num_free_blocks + num_back - num_taken

    def check_integrity(self, running: Iterable[Request]) -> None:
        """Check the pool, and that running requests hold what their tokens say.

        Raises: IntegrityError.
        """
        requests = tuple(running)
        self.pool.check_integrity(request.held_block_ids for request in requests)
        for request in requests:
            self._check_request(request)
        if not all(owner in requests for owner in self._coming.values()):
            raise IntegrityError("a prefix is said to come of a request that does not run")

    def _check_request(self, request: Request) -> None:
        name, size = f"request {request.request_id}", self.pool.block_size
        num_computed, num_launched = request.num_computed_tokens, request.num_launched_tokens
        num_slots = len(request.block_ids) * size
        num_coming = request.num_coming_tokens + request.num_flying_drafts
        if not 0 <= num_computed <= num_launched <= min(num_coming, num_slots):
            raise IntegrityError(f"{name} has {num_launched} tokens computed or flying, too many")
        if self._num_blocks_unseen(num_computed) < request.num_unheld_blocks:
            raise IntegrityError(f"{name} let blocks go that its next token attends to")
        for index, block_id in enumerate(request.held_block_ids, request.num_unheld_blocks):
            published = self.pool.prefix_of(block_id)
            if (index + 1) * size > num_computed:
                if published is not None or self.pool.num_holders(block_id) > 1:
                    raise IntegrityError(f"{name} would write block {block_id}, which is shared")
            elif published is not None and published is not self._prefixes(request, index + 1)[-1]:
                raise IntegrityError(f"{name} holds block {block_id}, which has other tokens")
