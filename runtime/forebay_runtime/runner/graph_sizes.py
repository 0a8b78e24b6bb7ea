"""For which numbers of sequences a decode step is captured as a CUDA graph.

Close together where a step is short, so that little is computed for padding; a step of many
sequences loses less by it. Pure; imports no torch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

_SMALL = (1, 2, 4)
_STEP = 8
_WIDE_STEP = 16
_WIDE_FROM = 256


def graph_sizes(max_num_seqs: int) -> tuple[int, ...]:
    """1, 2, 4, then every eighth up to 256 and every sixteenth after, and max_num_seqs itself."""
    sizes = {
        *_SMALL,
        *range(_STEP, min(max_num_seqs, _WIDE_FROM) + 1, _STEP),
        *range(_WIDE_FROM, max_num_seqs + 1, _WIDE_STEP),
        max_num_seqs,
    }
    return tuple(sorted(size for size in sizes if size <= max_num_seqs))


def size_for(num_seqs: int, sizes: Sequence[int]) -> int:
    """The least of the ascending sizes that holds num_seqs, which is at most the last of them."""
    return sizes[bisect_left(sizes, num_seqs)]
