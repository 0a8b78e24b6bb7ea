"""Which requests the model computed no finite numbers for: found on the device, asked for later."""

from __future__ import annotations

import torch
from torch import Tensor

from forebay_runtime.scheduling.batch import Batch


def is_finite(hidden: Tensor) -> Tensor:
    """Which states are all finite numbers. Shapes: hidden [T, h]; out [T] bool."""
    return hidden.sum(-1, dtype=torch.float32).isfinite()


class BrokenRequests:
    """The requests of a batch that have a token whose state is not all finite numbers.

    Made while the step runs, without waiting for it; what it will tell is copied, or on its way to
    the host, from then on, so that later steps neither delay nor overwrite it.
    """

    def __init__(self, is_finite: Tensor, batch: Batch) -> None:
        """Shapes: is_finite [T], T the batch's tokens."""
        self._batch = batch
        self._is_finite = is_finite.to("cpu", non_blocking=True, copy=True)
        self._copied: torch.cuda.Event | None = None
        if is_finite.is_cuda:
            self._copied = torch.cuda.Event()
            self._copied.record()

    def __call__(self) -> frozenset[str]:
        """Their ids; waits for the step."""
        if self._copied is not None:
            self._copied.synchronize()
        if self._is_finite.all():
            return frozenset()
        chunks = self._batch.chunks
        parts = self._is_finite.split([chunk.num_tokens for chunk in chunks])
        return frozenset(
            chunk.request.request_id
            for chunk, part in zip(chunks, parts, strict=True)
            if not part.all()
        )
