"""Which of a step's samples count where tokens were proposed.

Each row of a step is sampled by itself: from the model's distribution at that place, with the
chance that belongs to that place of the answer (Request.draw), as if nothing had been proposed. Up
to the first sample that differs from the proposal, each row saw the text that was really there, so
its sample is the one that a step without proposals would have given: to the token, for the same
seed. What comes after saw a text that is not, and is thrown away.

The distribution is the model's own whatever is proposed. A proposal that does not depend on the
place's chance is kept as often as the model's probability p(x) of it, and what replaces it is
distributed as p without x: rejection sampling with a proposal that is certain. A draft model that
draws with the same chance is kept at least (1 - d) / (1 + d) of the time, d the total variation
distance of the two.
Source: Leviathan et al. 2023 alg. 1; Chen et al. 2023 alg. 2; Daliri et al. 2025 (drafter-invariant
speculative decoding). Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile


def accept(proposed: Sequence[int], sampled: Sequence[int]) -> tuple[int, ...]:
    """The samples that count, of one after each proposed token and one before all of them."""
    if not proposed:
        return tuple(sampled)
    pairs = zip(proposed, sampled, strict=False)
    num_kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return tuple(sampled[: num_kept + 1])
