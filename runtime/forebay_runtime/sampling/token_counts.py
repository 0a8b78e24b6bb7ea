"""How often each token came, for requests with penalties, on the device where tokens are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch

from forebay_runtime.request import Request
from forebay_runtime.sampling.transfer import send


@dataclass
class _Place:
    """A request's row of counts, and how many of its tokens it holds."""

    row: int
    num_counted: int


class DeviceTokenCounts:
    """A row of counts for each request that needs one; the kernel that draws counts in place.

    A row is taken over by another request when its own is gone, or has not run for longest; if
    that comes back, its tokens are counted anew.
    """

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self.counts = torch.zeros(1, vocab_size, dtype=torch.int16, device=device)
        """[rows, V], twice how often each token was drawn, plus one where the prompt has it."""
        self._places: WeakKeyDictionary[Request, _Place] = WeakKeyDictionary()

    def rows(self, requests: Sequence[Request], most_rows: int) -> list[int]:
        """Each request's row, where what it has is counted and its next token is about to be.

        most_rows: that may be asked for at once, now or later; fewer are not made room for.
        """
        if len(self.counts) < most_rows:
            self.counts = torch.nn.functional.pad(
                self.counts, (0, 0, 0, most_rows - len(self.counts))
            )
        here = set(requests)
        return [self._row_of(request, here) for request in requests]

    def _row_of(self, request: Request, here: set[Request]) -> int:
        num_tokens = request.num_sampled_tokens
        place = self._places.pop(request, None)
        if place is None:
            place = _Place(self._free_row(here), -1)
        # The one used last stands last.
        self._places[request] = place
        if place.num_counted != num_tokens:
            self._count(request, place.row)
        place.num_counted = num_tokens + 1
        return place.row

    def _free_row(self, here: set[Request]) -> int:
        taken = {place.row for place in self._places.values()}
        for row in range(len(self.counts)):
            if row not in taken:
                return row
        longest = next(request for request in self._places if request not in here)
        return self._places.pop(longest).row

    def _count(self, request: Request, row: int) -> None:
        output = np.asarray(request.output_token_ids, np.int64)
        counted = 2 * np.bincount(output, minlength=self._vocab_size)
        if request.sampling.repetition_penalty != 1:
            counted[request.prompt_token_ids] |= 1
        [sent] = send([np.minimum(counted, 32767).astype(np.int16)], self._device)
        self.counts[row].copy_(sent)
