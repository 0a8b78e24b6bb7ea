"""Runs the model over a batch.

The engine calls run once a step. It describes the batch in numbers and computes those; where
several processes share a model, each of them computes the same numbers. Nothing here decides what
runs.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from forebay_kernels import ops
from forebay_kernels.choice import uses_triton
from forebay_runtime.models.decoder import Decoder
from forebay_runtime.models.kv_cache import KvCache
from forebay_runtime.models.row_padding import padded_size
from forebay_runtime.runner.computed import Computed
from forebay_runtime.runner.decode_graphs import DecodeGraphs, Recorder
from forebay_runtime.runner.device_buffers import DeviceBuffers, PaddedSizes, StepTensors
from forebay_runtime.runner.finiteness import BrokenRequests, is_finite
from forebay_runtime.runner.native_steps import record_steps
from forebay_runtime.runner.shape_log import ShapeLog
from forebay_runtime.runner.step_inputs import NO_STEP, StepInputs, describe_step
from forebay_runtime.scheduling.batch import Batch, Chunk, Limits
from forebay_runtime.step_result import PromptStates, StepResult

_SCORED_BYTES = 32 * 1024**2
"""Logits of prompts that are held at once."""
_SCORED_ROWS = 64
"""More at a time are no faster."""


class ModelRunner:
    """A model, its KV cache and the buffers that feed it."""

    def __init__(
        self,
        model: Decoder,
        cache: KvCache,
        limits: Limits,
        *,
        is_batch_invariant: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        """Make the buffers; is_batch_invariant computes each token alike in every batch.

        recorder: what captures decode steps; None launches each of their kernels every time.
        """
        self.model = model
        self.cache = cache
        self.limits = limits
        self.shapes = _watched_shapes(model.placement.device)
        self.is_batch_invariant = is_batch_invariant
        vocab_size = model.config.sizes.vocab_size
        self.score_rows = min(_SCORED_ROWS, max(8, _SCORED_BYTES // (4 * vocab_size)))
        self.num_blocks, self.block_size = cache.num_blocks, cache.block_size
        self.cache_bytes = cache.num_bytes
        device = model.placement.device
        most = PaddedSizes(
            padded_size(limits.max_num_batched_tokens),
            limits.max_num_seqs,
            padded_size(limits.max_num_sampled),
        )
        self._buffers = DeviceBuffers(most, -(-limits.max_model_len // self.block_size), device)
        self._samples = torch.zeros(most.num_sampled, dtype=torch.int64, device=device)
        # Kernels pass over rows without a slot; torch's own cannot, and take the others alone.
        self._pads_slots = uses_triton(device)
        self._graphs: DecodeGraphs | None = None
        if recorder is not None:
            self._graphs = DecodeGraphs(recorder, limits.max_num_seqs, vocab_size, device)
        self._native = record_steps(model, cache, limits)

    @property
    def num_cold(self) -> int:
        """What ran for the first time after warm-up."""
        return self.shapes.num_cold

    @property
    def kernels(self) -> str:
        """What computes steps: triton, torch, or a CPU's set of instructions."""
        if self._native is not None:
            return self._native.instruction_set
        return "triton" if self._pads_slots else "torch"

    @property
    def is_native(self) -> bool:
        """Does a program of the CPU's kernels run all steps, of whatever shape?"""
        return self._native is not None

    @property
    def graphs_bytes(self) -> int:
        """What captured steps have taken of the device's memory."""
        return 0 if self._graphs is None else self._graphs.num_bytes

    def run(self, batch: Batch, num_layers: int | None = None) -> StepResult:
        """Compute a batch's tokens, and the logits of those requests that have caught up.

        num_layers: for warm-up, only so many layers.
        """
        computed = self.compute(describe_step(batch, self.block_size), num_layers)
        return StepResult(
            computed.logits,
            self._prompt_states(computed.hidden, batch),
            BrokenRequests(computed.is_finite, batch),
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
        if self._native is not None:
            return self._native.compute(inputs, self._samples, num_layers)
        with torch.inference_mode(), ops.batch_invariant(self.is_batch_invariant):
            if self._graphs is not None and inputs.is_decode and num_layers is None:
                size = self._graphs.size_for(inputs.num_seqs)
                if size is not None:
                    return self._replay(self._graphs, size, inputs)
            return self._launch(inputs, num_layers)

    def end_warm_up(self) -> None:
        """From here on what is new is cold, and steps are of all layers."""
        self.shapes.end_warm_up()
        if self._native is not None:
            self._native.end_warm_up()

    def capture_graphs(self) -> None:
        """Capture decode steps of all sizes, if anything captures them."""
        graphs = self._graphs
        if graphs is None:
            return
        with torch.inference_mode(), ops.batch_invariant(self.is_batch_invariant):
            for size in reversed(graphs.sizes):
                self.shapes.note("graph", size)
                # All of it is padding, which no kernel follows anywhere.
                self._buffers.send(NO_STEP, PaddedSizes(size, size, size))
                graphs.capture(size, partial(self._launch_decode, graphs, size))

    def _launch(self, inputs: StepInputs, num_layers: int | None) -> Computed:
        num_tokens, num_sampled = inputs.num_tokens, inputs.num_sampled
        sizes = PaddedSizes(
            padded_size(num_tokens),
            inputs.num_seqs,
            padded_size(num_sampled) if num_sampled else 0,
        )
        tensors = self._buffers.send(inputs, sizes)
        self.shapes.note("tokens", sizes.num_tokens)
        slots = tensors.slots if self._pads_slots else tensors.slots[:num_tokens]
        plan = self._plan(inputs.query_lens, inputs.seq_lens, tensors, slots)
        token_ids = self._take_carried(tensors) if inputs.has_carried else tensors.token_ids
        hidden = self.model.hidden_states(
            token_ids, tensors.positions, plan, self.cache, num_layers
        )
        logits = hidden.new_empty(0, self.model.config.sizes.vocab_size)
        if num_sampled:
            self.shapes.note("logits", sizes.num_sampled)
            logits = self.model.logits(hidden[tensors.sampled_rows])[:num_sampled]
        return Computed(hidden, logits, is_finite(hidden[:num_tokens]))

    def _launch_decode(self, graphs: DecodeGraphs, size: int) -> None:
        """A decode step of so many sequences, from buffers to buffers.

        On the host it is one of the longest sequences; what they really are stands in the buffers.
        """
        tensors = self._buffers.tensors(PaddedSizes(size, size, size))
        longest = self.limits.max_model_len
        plan = self._plan((1,) * size, (longest,) * size, tensors, tensors.slots)
        hidden = self.model.hidden_states(
            self._take_carried(tensors), tensors.positions, plan, self.cache
        )
        self.model.logits(hidden, out=graphs.logits[:size])
        graphs.is_finite[:size].copy_(is_finite(hidden))

    def _replay(self, graphs: DecodeGraphs, size: int, inputs: StepInputs) -> Computed:
        self._buffers.send(inputs, PaddedSizes(size, size, size))
        graphs.replay(size)
        num_seqs = inputs.num_seqs
        return Computed(None, graphs.logits[:num_seqs], graphs.is_finite[:num_seqs])

    def _plan(
        self,
        query_lens: tuple[int, ...],
        seq_lens: tuple[int, ...],
        tensors: StepTensors,
        slots: Tensor,
    ) -> ops.AttentionPlan:
        ragged = ops.Ragged(
            query_lens,
            seq_lens,
            tensors.block_tables,
            slots,
            tensors.query_starts,
            tensors.seq_lens,
        )
        return ops.plan_attention(ragged, self.block_size, self.model.placement.dtype)

    def _take_carried(self, tensors: StepTensors) -> Tensor:
        """The token ids, those in their place that the step before sampled. Shapes: out [T]."""
        carried = self._samples[tensors.carried.clamp(min=0)]
        return torch.where(tensors.carried >= 0, carried, tensors.token_ids)

    def _prompt_states(self, hidden: Tensor | None, batch: Batch) -> PromptStates | None:
        """The states of those chunks of which more than a next token was asked."""
        if hidden is None:
            return None
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
        num_padded = num_rows = len(hidden)
        if not self.is_native:
            num_padded = padded_size(num_rows)
            self.shapes.note("logits", num_padded)
        with torch.inference_mode(), ops.batch_invariant(self.is_batch_invariant):
            padded = torch.nn.functional.pad(hidden, (0, 0, 0, num_padded - num_rows))
            return self.model.logits(padded)[:num_rows]

    def _normed(self, hidden: Tensor) -> Tensor:
        with torch.inference_mode(), ops.batch_invariant(self.is_batch_invariant):
            return self.model.normed(hidden)


def _watched_shapes(device: torch.device) -> ShapeLog:
    """A log that also counts the kernels that a launch meets, and the memory that is asked for."""
    shapes = ShapeLog()
    if uses_triton(device):
        from forebay_kernels.gpu.compiling.compilation_count import watch_compilations

        compilations = watch_compilations()
        shapes.watch(lambda: compilations.num_met)
    if device.type == "cuda":
        shapes.watch(lambda: int(torch.cuda.memory_stats(device).get("num_device_alloc", 0)))
    return shapes


def _num_states(chunk: Chunk) -> int:
    """How many of a chunk's first tokens an embedding or prompt logprobs are made of."""
    request = chunk.request
    if request.pooling is not None:
        return chunk.num_tokens
    if request.sampling.num_prompt_logprobs is None or request.output_token_ids:
        return 0
    # After the prompt's last token comes what is sampled, which is scored as such.
    return min(chunk.end, len(request.prompt_token_ids) - 1) - chunk.start
