"""Embeddings: a prompt's hidden states as one vector of unit length."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from forebay_runtime.request import Request
from forebay_runtime.scheduling.batch import Chunk


class Pooler:
    """Pools prompts by their mean or last token; means are summed up over a prompt's chunks."""

    def __init__(self) -> None:
        self._sums: WeakKeyDictionary[Request, Tensor] = WeakKeyDictionary()

    def pool(self, chunk: Chunk, states: Tensor) -> Tensor | None:
        """Take a chunk's states after the last norm; the vector with the prompt's last chunk.

        Shapes: states [n, h]; out [h] float32.
        """
        request = chunk.request
        is_last = chunk.end == len(request.prompt_token_ids)
        if request.pooling == "last":
            return _to_unit(states[-1].double()) if is_last else None
        # In float64, so that where chunks part does not show in float32.
        total = states.sum(0, dtype=torch.float64)
        if chunk.start > 0:
            total += self._sums[request]
        self._sums[request] = total
        return _to_unit(total) if is_last else None


def _to_unit(vector: Tensor) -> Tensor:
    """Scaled to length one; what is all zeros stays so."""
    length = vector.norm().clamp_min(torch.finfo(torch.float32).tiny)
    unit: Tensor = (vector / length).float()
    return unit
