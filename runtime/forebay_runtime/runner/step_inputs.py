"""One step in numbers: all that the model needs to know of a batch, and nothing of its requests.

describe_step makes them from the scheduler's batch; the runner turns them into tensors, in this
process and, where several share a model, in every one of them. Only numpy, small when pickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from forebay_runtime.scheduling.batch import Batch, Chunk

_TOKEN_IDS, _POSITIONS, _SLOTS, _CARRIED = range(4)


@dataclass(frozen=True)
class StepInputs:
    """A batch's numbers: S sequences with T tokens in all, one after another, R of them sampled.

    tokens: [4, T] int64, for each token its id, position, slot in the cache (block * block_size +
    offset) and, where its id is what the step before sampled, the row among that step's samples;
    else -1. The id of such a token is a placeholder.
    query_lens: each sequence's tokens in this step; seq_lens: its tokens with a key, these too.
    block_tables: [S, M] int32, each sequence's blocks in order, zeros past them; M is the most of
    any of them, so it differs by step.
    sampled_rows: [R] int64, the rows among the T tokens whose logits are wanted, ascending.
    has_carried: is any token's id what the step before sampled?
    """

    tokens: NDArray[np.int64]
    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    block_tables: NDArray[np.int32]
    sampled_rows: NDArray[np.int64]
    has_carried: bool = False

    @property
    def token_ids(self) -> NDArray[np.int64]:
        """[T], placeholders where carried says so."""
        return self._row(_TOKEN_IDS)

    @property
    def positions(self) -> NDArray[np.int64]:
        """[T], each token's place in its sequence."""
        return self._row(_POSITIONS)

    @property
    def slots(self) -> NDArray[np.int64]:
        """[T], each token's place in the cache."""
        return self._row(_SLOTS)

    @property
    def carried(self) -> NDArray[np.int64]:
        """[T], the row of the previous step's samples that a token comes from, or -1."""
        return self._row(_CARRIED)

    @property
    def num_tokens(self) -> int:
        """T."""
        return len(self.tokens[0])

    @property
    def num_seqs(self) -> int:
        """S."""
        return len(self.query_lens)

    @property
    def num_sampled(self) -> int:
        """R."""
        return len(self.sampled_rows)

    @property
    def is_decode(self) -> bool:
        """Has every sequence one token, of which a next one is sampled?"""
        return self.num_tokens == self.num_seqs == self.num_sampled

    def _row(self, index: int) -> NDArray[np.int64]:
        row: NDArray[np.int64] = self.tokens[index]
        return row


NO_STEP = StepInputs(
    np.empty((4, 0), np.int64), (), (), np.zeros((0, 1), np.int32), np.empty(0, np.int64)
)
"""A step of no sequence: padded to any size, it is harmless."""


def describe_step(batch: Batch, block_size: int) -> StepInputs:
    """A batch in numbers; the id of a token that is carried is a placeholder."""
    chunks = batch.chunks
    if all([chunk.num_tokens == 1 and chunk.catches_up for chunk in chunks]):
        return _describe_decode(chunks, block_size)
    query_lens = [chunk.num_tokens for chunk in chunks]
    ends = np.cumsum(query_lens)
    tokens = np.empty((4, batch.num_tokens), np.int64)
    block_tables = _block_tables(chunks, block_size)
    num_single = _fill_single_tokens(tokens, chunks)
    _fill_longer(tokens[:, num_single:], chunks[num_single:])
    sequences = np.repeat(np.arange(len(chunks)), query_lens)
    blocks = tokens[_POSITIONS] // block_size
    tokens[_SLOTS] = tokens[_POSITIONS] + (block_tables[sequences, blocks] - blocks) * block_size
    rows = [-1 if chunk.carried_row is None else chunk.carried_row for chunk in chunks]
    tokens[_CARRIED] = -1
    tokens[_CARRIED, ends - 1] = rows
    return StepInputs(
        tokens,
        tuple(query_lens),
        tuple([chunk.start + chunk.num_tokens for chunk in chunks]),
        block_tables,
        _sampled_rows(chunks, ends),
        max(rows) >= 0,
    )


def _describe_decode(chunks: Sequence[Chunk], block_size: int) -> StepInputs:
    """The same of chunks of one token each, all sampled: most steps, which must cost little.

    In one pass over the chunks and few calls of numpy: the first call of each of its functions
    after a model's step, which leaves nothing in the processor's caches, takes 10 us and more.
    """
    token_ids, positions, slots, carried = [], [], [], []
    for chunk in chunks:
        request, start, row = chunk.request, chunk.start, chunk.carried_row
        token_ids.append(request.token_at(start) if row is None else 0)
        carried.append(-1 if row is None else row)
        positions.append(start)
        blocks, place = request.block_ids, start // block_size
        block_id = blocks[place] if place < len(blocks) else 0
        slots.append(block_id * block_size + start % block_size)
    return StepInputs(
        np.array((token_ids, positions, slots, carried), np.int64),
        (1,) * len(chunks),
        tuple([start + 1 for start in positions]),
        _block_tables(chunks, block_size),
        _first_rows(len(chunks)),
        max(carried) >= 0,
    )


@cache
def _first_rows(number: int) -> NDArray[np.int64]:
    return np.arange(number)


def _sampled_rows(chunks: Sequence[Chunk], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The last row of each chunk that catches up, and before it those whose guesses are tried."""
    last: NDArray[np.int64] = ends[[chunk.catches_up for chunk in chunks]] - 1
    numbers = [1 + len(chunk.proposed) for chunk in chunks if chunk.catches_up]
    if len(last) == sum(numbers):
        return last
    rows = [np.arange(end - num, end) for end, num in zip(last + 1, numbers, strict=True)]
    return np.concatenate(rows)


def _fill_single_tokens(tokens: NDArray[np.int64], chunks: Sequence[Chunk]) -> int:
    """Write id and position of the chunks of one token that stand first; returns how many."""
    single = list(takewhile(lambda chunk: chunk.num_tokens == 1, chunks))
    tokens[_TOKEN_IDS, : len(single)] = [
        chunk.request.token_at(chunk.start) if chunk.carried_row is None else 0 for chunk in single
    ]
    tokens[_POSITIONS, : len(single)] = [chunk.start for chunk in single]
    return len(single)


def _fill_longer(tokens: NDArray[np.int64], chunks: Sequence[Chunk]) -> None:
    """Write each token's id and position."""
    row = 0
    for chunk in chunks:
        end = row + chunk.num_tokens
        known = [*chunk.request.token_ids(chunk.start, chunk.end), *chunk.proposed]
        tokens[_TOKEN_IDS, row : row + len(known)] = known
        tokens[_TOKEN_IDS, row + len(known) : end] = 0
        tokens[_POSITIONS, row:end] = np.arange(chunk.start, chunk.end)
        row = end


def _block_tables(chunks: Sequence[Chunk], block_size: int) -> NDArray[np.int32]:
    """[S, M]; a request of warm-up has no blocks, and all its tokens lie in block 0."""
    tables = [chunk.request.block_ids for chunk in chunks]
    num_blocks = -(-max([chunk.start + chunk.num_tokens for chunk in chunks]) // block_size)
    num_bytes = 4 * max(num_blocks, *map(len, tables))
    # One copy in C for each, as there may be hundreds of requests of hundreds of blocks.
    rows = b"".join([ids.tobytes().ljust(num_bytes, b"\0") for ids in tables])
    return np.frombuffer(rows, np.int32).reshape(len(chunks), -1)
