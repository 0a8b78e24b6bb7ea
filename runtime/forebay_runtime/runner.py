"""Turns a batch into tensors and runs the model over it.

The engine calls run once a step. Inputs live in buffers made once; nothing here decides what runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forebay_kernels import ops
from forebay_runtime.models.decoder import Decoder
from forebay_runtime.models.kv_cache import KvCache
from forebay_runtime.scheduling.batch import Batch, Chunk, Limits
from forebay_runtime.shapes import ShapeLog, padded_size
from forebay_runtime.step_result import PromptStates, StepResult

_SCORED_BYTES = 32 * 1024**2
"""Logits of prompts that are held at once."""
_SCORED_ROWS = 64
"""More at a time are no faster."""


class Buffer:
    """One input of the model: filled on the host, read on the device, allocated once."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        is_shared = device.type == "cpu"
        self._host = torch.zeros(shape, dtype=dtype, pin_memory=not is_shared)
        self._device = self._host if is_shared else torch.zeros(shape, dtype=dtype, device=device)
        self.array = self._host.numpy()

    def sent(self, num_rows: int) -> Tensor:
        """The first rows, on the device."""
        rows = self._device[:num_rows]
        if self._device is not self._host:
            # Waits for the copy: the next step refills the host's side, and a step that samples
            # nothing waits for nothing else.
            rows.copy_(self._host[:num_rows])
        return rows


class ModelRunner:
    """A model, its KV cache and the buffers that feed it."""

    def __init__(
        self,
        model: Decoder,
        cache: KvCache,
        limits: Limits,
        shapes: ShapeLog,
        *,
        is_batch_invariant: bool = False,
    ) -> None:
        """Make the buffers; is_batch_invariant computes each token alike in every batch."""
        self.model = model
        self.cache = cache
        self.limits = limits
        self.shapes = shapes
        self.is_batch_invariant = is_batch_invariant
        vocab_size = model.config.sizes.vocab_size
        self.score_rows = min(_SCORED_ROWS, max(8, _SCORED_BYTES // (4 * vocab_size)))
        self.num_blocks, self.block_size = cache.num_blocks, cache.block_size
        self.cache_bytes = cache.num_bytes
        device = model.placement.device
        most_tokens, most_seqs = padded_size(limits.max_num_batched_tokens), limits.max_num_seqs
        most_blocks = -(-limits.max_model_len // self.block_size)
        self._token_ids = Buffer((most_tokens,), torch.int64, device)
        self._positions = Buffer((most_tokens,), torch.int64, device)
        self._slots = Buffer((most_tokens,), torch.int64, device)
        self._sampled_rows = Buffer((padded_size(most_seqs),), torch.int64, device)
        self._tables = Buffer((most_seqs, most_blocks), torch.int32, device)
        self._query_starts = Buffer((most_seqs + 1,), torch.int32, device)
        self._seq_lens = Buffer((most_seqs,), torch.int32, device)

    @property
    def num_cold(self) -> int:
        """What ran for the first time after warm-up."""
        return self.shapes.num_cold

    def run(self, batch: Batch, num_layers: int | None = None) -> StepResult:
        """Compute a batch's tokens, and the logits of those requests that have caught up.

        num_layers: for warm-up, only so many layers.
        """
        num_tokens = batch.num_tokens
        num_rows = padded_size(num_tokens)
        self.shapes.note("tokens", num_rows)
        with torch.inference_mode(), ops.batch_invariant(self.is_batch_invariant):
            plan = ops.AttentionPlan(
                self._fill(batch, num_tokens, num_rows), self.block_size, self.model.placement.dtype
            )
            token_ids, positions = self._token_ids.sent(num_rows), self._positions.sent(num_rows)
            hidden = self.model.hidden_states(token_ids, positions, plan, self.cache, num_layers)
            return StepResult(
                logits=self._logits(hidden, batch),
                prompts=self._prompt_states(hidden, batch),
                broken=_find_broken(hidden[:num_tokens], batch),
            )

    def _prompt_states(self, hidden: Tensor, batch: Batch) -> PromptStates | None:
        """The states of those chunks of which more than a next token was asked."""
        states: dict[str, Tensor] = {}
        row = 0
        for chunk in batch.chunks:
            num_rows = _num_states(chunk)
            if num_rows > 0:
                states[chunk.request.request_id] = hidden[row : row + num_rows]
            row += chunk.num_tokens
        if not states:
            return None
        return PromptStates(states, self._normed, self.score, self.score_rows)

    def score(self, hidden: Tensor) -> Tensor:
        """The logits of at most score_rows hidden states.

        Shapes: hidden [n, h], as the last layer leaves them; out [n, V] float32.
        """
        num_rows = len(hidden)
        num_padded = padded_size(num_rows)
        self.shapes.note("logits", num_padded)
        with torch.inference_mode(), ops.batch_invariant(self.is_batch_invariant):
            padded = torch.nn.functional.pad(hidden, (0, 0, 0, num_padded - num_rows))
            return self.model.logits(padded)[:num_rows]

    def _normed(self, hidden: Tensor) -> Tensor:
        with torch.inference_mode(), ops.batch_invariant(self.is_batch_invariant):
            return self.model.normed(hidden)

    def _logits(self, hidden: Tensor, batch: Batch) -> Tensor:
        last_rows = np.cumsum([chunk.num_tokens for chunk in batch.chunks]) - 1
        rows = last_rows[[chunk.catches_up for chunk in batch.chunks]]
        num_sampled = len(rows)
        if num_sampled == 0:
            return hidden.new_empty(0, self.model.config.sizes.vocab_size)
        num_padded = padded_size(num_sampled)
        self.shapes.note("logits", num_padded)
        self._sampled_rows.array[:num_sampled] = rows
        self._sampled_rows.array[num_sampled:num_padded] = 0
        return self.model.logits(hidden[self._sampled_rows.sent(num_padded)])[:num_sampled]

    def _fill(self, batch: Batch, num_tokens: int, num_rows: int) -> ops.Ragged:
        """Write a batch into the buffers; rows past num_tokens are padding."""
        token_ids, positions = self._token_ids.array, self._positions.array
        token_ids[num_tokens:num_rows] = 0
        positions[num_tokens:num_rows] = 0
        row = 0
        for index, chunk in enumerate(batch.chunks):
            end = row + chunk.num_tokens
            token_ids[row:end] = chunk.request.token_ids(chunk.start, chunk.end)
            positions[row:end] = np.arange(chunk.start, chunk.end)
            block_ids = chunk.request.block_ids
            self._tables.array[index, : len(block_ids)] = block_ids
            row = end
        query_lens = [chunk.num_tokens for chunk in batch.chunks]
        num_seqs = len(query_lens)
        self._query_starts.array[1 : num_seqs + 1] = np.cumsum(query_lens)
        self._seq_lens.array[:num_seqs] = [chunk.end for chunk in batch.chunks]
        self._slots.array[:num_tokens] = self._find_slots(query_lens, num_tokens)
        return ops.Ragged(
            query_lens=tuple(query_lens),
            seq_lens=tuple(chunk.end for chunk in batch.chunks),
            block_tables=self._tables.sent(num_seqs),
            slots=self._slots.sent(num_tokens),
            query_starts=self._query_starts.sent(num_seqs + 1),
            seq_lens_device=self._seq_lens.sent(num_seqs),
        )

    def _find_slots(self, query_lens: Sequence[int], num_tokens: int) -> NDArray[np.int64]:
        """Each token's place in the cache: block * block_size + offset."""
        positions = self._positions.array[:num_tokens]
        sequences = np.repeat(np.arange(len(query_lens)), query_lens)
        blocks = self._tables.array[sequences, positions // self.block_size]
        slots: NDArray[np.int64] = blocks.astype(np.int64) * self.block_size + (
            positions % self.block_size
        )
        return slots


def _num_states(chunk: Chunk) -> int:
    """How many of a chunk's first tokens an embedding or prompt logprobs are made of."""
    request = chunk.request
    if request.pooling is not None:
        return chunk.num_tokens
    if request.sampling.num_prompt_logprobs is None or request.output_token_ids:
        return 0
    # After the prompt's last token comes what is sampled, which is scored as such.
    return min(chunk.end, len(request.prompt_token_ids) - 1) - chunk.start


def _find_broken(hidden: Tensor, batch: Batch) -> frozenset[str]:
    """The requests that have a token whose state is not all finite numbers.

    Shapes: hidden [T, h], T the batch's tokens.
    """
    is_finite = hidden.sum(-1, dtype=torch.float32).isfinite()
    if is_finite.all():
        return frozenset()
    parts = is_finite.split([chunk.num_tokens for chunk in batch.chunks])
    return frozenset(
        chunk.request.request_id
        for chunk, part in zip(batch.chunks, parts, strict=True)
        if not part.all()
    )
