"""Where a ragged batch's sequences lie: the one description that attention and cache writes share.

The runner builds one a step. Only numbers and indices, so a kernel of any kind can take it over.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Ragged:
    """S sequences with T query tokens in all, one after another.

    query_lens: each sequence's tokens in this step; seq_lens: its tokens with a key, these too.
    Sequence s's queries stand at positions [seq_lens[s] - query_lens[s], seq_lens[s]).
    block_tables: [S, M] int32, the blocks of each sequence in order; entries past its length are
    any valid block. slots: [T] int64, block * B + offset of each query token's key.
    """

    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    block_tables: Tensor
    slots: Tensor

    @property
    def num_decodes(self) -> int:
        """Sequences at the head that have one query token each."""
        for index, query_len in enumerate(self.query_lens):
            if query_len != 1:
                return index
        return len(self.query_lens)
