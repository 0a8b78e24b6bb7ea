"""Runs the model over a batch.

The engine calls run once a step. It describes the batch in numbers and computes those; where
several processes share a model, each of them computes the same numbers. Nothing here decides what
runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from forebay_kernels import ops
from forebay_runtime.device_buffers import DeviceBuffers, PaddedSizes, StepTensors
from forebay_runtime.models.decoder import Decoder
from forebay_runtime.models.kv_cache import KvCache
from forebay_runtime.scheduling.batch import Batch, Chunk, Limits
from forebay_runtime.shapes import ShapeLog, padded_size
from forebay_runtime.step_inputs import StepInputs, describe_step
from forebay_runtime.step_result import PromptStates, StepResult

_SCORED_BYTES = 32 * 1024**2
"""Logits of prompts that are held at once."""
_SCORED_ROWS = 64
"""More at a time are no faster."""


@dataclass(frozen=True)
class Computed:
    """What the model made of a step's inputs: T rows, R of them sampled, without their padding.

    hidden: [T, h], as the last layer leaves them. logits: [R, V] float32. is_finite: [T] bool, has
    a token's state no NaN and no infinity? All three stand until the next step is computed.
    """

    hidden: Tensor
    logits: Tensor
    is_finite: Tensor


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
        most = PaddedSizes(
            padded_size(limits.max_num_batched_tokens),
            limits.max_num_seqs,
            padded_size(limits.max_num_seqs),
        )
        self._buffers = DeviceBuffers(most, -(-limits.max_model_len // self.block_size), device)
        self._samples = torch.zeros(most.num_sampled, dtype=torch.int64, device=device)

    @property
    def num_cold(self) -> int:
        """What ran for the first time after warm-up."""
        return self.shapes.num_cold

    def run(self, batch: Batch, num_layers: int | None = None) -> StepResult:
        """Compute a batch's tokens, and the logits of those requests that have caught up.

        num_layers: for warm-up, only so many layers.
        """
        computed = self.compute(describe_step(batch, self.block_size), num_layers)
        return StepResult(
            computed.logits,
            self._prompt_states(computed.hidden, batch),
            partial(_find_broken, computed.is_finite, batch),
        )

    def carry(self, token_ids: Tensor) -> None:
        """Keep a step's samples for the next one, whose inputs may name them by their row.

        Shapes: token_ids [R] int64, on the model's device.
        """
        self._samples[: len(token_ids)].copy_(token_ids)

    def compute(self, inputs: StepInputs, num_layers: int | None = None) -> Computed:
        """Run the model over a step's inputs: the same in every process that shares it.

        num_layers: for warm-up, only so many layers.
        """
        sizes = PaddedSizes(
            padded_size(inputs.num_tokens), inputs.num_seqs, _padded_or_none(inputs.num_sampled)
        )
        self.shapes.note("tokens", sizes.num_tokens)
        if inputs.num_sampled:
            self.shapes.note("logits", sizes.num_sampled)
        with torch.inference_mode(), ops.batch_invariant(self.is_batch_invariant):
            tensors = self._buffers.send(inputs, sizes)
            hidden = self._hidden(inputs, tensors, num_layers)
            return Computed(
                hidden,
                self._logits(hidden, inputs, tensors),
                _is_finite(hidden[: inputs.num_tokens]),
            )

    def _hidden(self, inputs: StepInputs, tensors: StepTensors, num_layers: int | None) -> Tensor:
        plan = ops.AttentionPlan(
            ops.Ragged(
                query_lens=inputs.query_lens,
                seq_lens=inputs.seq_lens,
                block_tables=tensors.block_tables,
                slots=tensors.slots[: inputs.num_tokens],
                query_starts=tensors.query_starts,
                seq_lens_device=tensors.seq_lens,
            ),
            self.block_size,
            self.model.placement.dtype,
        )
        token_ids = tensors.token_ids
        if inputs.has_carried:
            is_carried = tensors.carried >= 0
            carried = self._samples[tensors.carried.clamp(min=0)]
            token_ids = torch.where(is_carried, carried, token_ids)
        return self.model.hidden_states(token_ids, tensors.positions, plan, self.cache, num_layers)

    def _logits(self, hidden: Tensor, inputs: StepInputs, tensors: StepTensors) -> Tensor:
        if inputs.num_sampled == 0:
            return hidden.new_empty(0, self.model.config.sizes.vocab_size)
        return self.model.logits(hidden[tensors.sampled_rows])[: inputs.num_sampled]

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


def _padded_or_none(num_rows: int) -> int:
    return padded_size(num_rows) if num_rows else 0


def _num_states(chunk: Chunk) -> int:
    """How many of a chunk's first tokens an embedding or prompt logprobs are made of."""
    request = chunk.request
    if request.pooling is not None:
        return chunk.num_tokens
    if request.sampling.num_prompt_logprobs is None or request.output_token_ids:
        return 0
    # After the prompt's last token comes what is sampled, which is scored as such.
    return min(chunk.end, len(request.prompt_token_ids) - 1) - chunk.start


def _is_finite(hidden: Tensor) -> Tensor:
    """Which states are all finite numbers. Shapes: hidden [T, h]; out [T] bool."""
    return hidden.sum(-1, dtype=torch.float32).isfinite()


def _find_broken(is_finite: Tensor, batch: Batch) -> frozenset[str]:
    """The requests that have a token whose state is not all finite numbers; waits for the step.

    Shapes: is_finite [T], T the batch's tokens.
    """
    if is_finite.all():
        return frozenset()
    parts = is_finite.split([chunk.num_tokens for chunk in batch.chunks])
    return frozenset(
        chunk.request.request_id
        for chunk, part in zip(batch.chunks, parts, strict=True)
        if not part.all()
    )
