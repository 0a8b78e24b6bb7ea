"""Where a ragged batch's sequences lie: the one description that attention and cache writes share.

The runner builds one a step. Only numbers and indices, so a kernel of any kind can take it over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor


@dataclass(frozen=True)
class Ragged:
    """S sequences with T query tokens in all, one after another.

    query_lens: each sequence's tokens in this step; seq_lens: its tokens with a key, these too.
    Sequence s's queries stand at positions [seq_lens[s] - query_lens[s], seq_lens[s]).
    block_tables: [S, M] int32, the blocks of each sequence in order; entries past its length are
    any valid block. slots: [T] int64, block * B + offset of each query token's key.
    query_starts: [S + 1] int32, sequence s's queries are rows [query_starts[s],
    query_starts[s + 1]); seq_lens_device: [S] int32. Kernels read these two and no number of the
    host, so that a captured graph serves every batch of its size: there S is the padded number,
    and a sequence that only fills up has length 0, no rows, and slot -1 where a row stands for it.
    """

    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    block_tables: Tensor
    slots: Tensor
    query_starts: Tensor
    seq_lens_device: Tensor

    @classmethod
    def of(
        cls,
        query_lens: Sequence[int],
        seq_lens: Sequence[int],
        block_tables: Tensor,
        slots: Tensor,
    ) -> Ragged:
        """The same from the host's numbers alone, each copied to the tables' device."""
        starts, device = list(accumulate(query_lens, initial=0)), block_tables.device
        return cls(
            tuple(query_lens),
            tuple(seq_lens),
            block_tables,
            slots,
            torch.tensor(starts, dtype=torch.int32, device=device),
            torch.tensor(seq_lens, dtype=torch.int32, device=device),
        )

    @property
    def num_decodes(self) -> int:
        """Sequences at the head that have one query token each."""
        for index, query_len in enumerate(self.query_lens):
            if query_len != 1:
                return index
        return len(self.query_lens)
