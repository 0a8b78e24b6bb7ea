"""Which requests the model computed no finite numbers for: found on the device, asked for later."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forebay_runtime.scheduling.batch import Batch

_BROKEN = b"\0"
"""A flag that is false."""


def is_finite(hidden: Tensor) -> Tensor:
    """Which states are all finite numbers. Shapes: hidden [T, h]; out [T] bool."""
    return hidden.sum(-1, dtype=torch.float32).isfinite()


class BrokenRequests:
    """The requests of a batch that have a token whose state is not all finite numbers.

    Made while the step runs, without waiting for it; what it will tell is copied, or on its way to
    the host, from then on, so that later steps neither delay nor overwrite it.
    """

    def __init__(self, is_finite: Tensor | NDArray[np.bool_], batch: Batch) -> None:
        """Shapes: is_finite [T], T the batch's tokens."""
        self._batch = batch
        self._copied: torch.cuda.Event | None = None
        if isinstance(is_finite, np.ndarray):
            self._is_finite: Tensor | bytes = is_finite.tobytes()
            return
        self._is_finite = is_finite.to("cpu", non_blocking=True, copy=True)
        if is_finite.is_cuda:
            self._copied = torch.cuda.Event()
            self._copied.record()

    def __call__(self) -> frozenset[str]:
        """Their ids; waits for the step."""
        if self._copied is not None:
            self._copied.synchronize()
        flags = self._is_finite
        if not isinstance(flags, bytes):
            flags = flags.numpy().tobytes()
        if _BROKEN not in flags:
            return frozenset()
        chunks = self._batch.chunks
        ends = list(accumulate(chunk.num_tokens for chunk in chunks))
        return frozenset(
            chunk.request.request_id
            for chunk, end in zip(chunks, ends, strict=True)
            if _BROKEN in flags[end - chunk.num_tokens : end]
        )
