"""Steps on a CPU by a program of its own kernels: recorded once, then each step is one call.

The model says what it does by running once over what stands for a step's tensors. A program serves
steps of any shape up to the limits that it was made for, so nothing is met for the first time
later.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache, partial
from typing import cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from forebay_kernels import ops
from forebay_kernels.cpu.library import isa_in_use, native_library
from forebay_kernels.cpu.program import Program
from forebay_kernels.cpu.recorded import CannotRecord, RecordedIds, RecordedPlan, RecordedRows
from forebay_kernels.cpu.score_rows import ScoreRows
from forebay_kernels.cpu.step import StepArrays
from forebay_kernels.cpu.thread_pool import ThreadPool
from forebay_runtime.models.decoder import Decoder
from forebay_runtime.models.kv_cache import KvCache
from forebay_runtime.models.placement import NativeForm
from forebay_runtime.runner.computed import Computed
from forebay_runtime.runner.step_inputs import StepInputs
from forebay_runtime.scheduling.batch import Limits

logger = logging.getLogger(__name__)


class RecordedModel:
    """A model's steps as one program, and where each leaves what it computed."""

    def __init__(
        self,
        model: Decoder,
        cache: KvCache,
        limits: Limits,
        form: NativeForm,
        num_layers: int | None = None,
        beside: RecordedModel | None = None,
    ) -> None:
        """Record. num_layers: only so many of each kind, as Decoder.hidden_states has it.

        beside: in whose memory, and on whose threads, it works.
        Raises: CannotRecord if the model does something that is no instruction.
        """
        if not model.link.shard.is_whole or not model.stage.is_whole:
            raise CannotRecord("ranks that share a model talk to each other within a step")
        pool = ThreadPool(form.num_threads) if beside is None else beside._pool
        self._pool: ThreadPool = pool
        program = Program(
            limits.max_num_batched_tokens,
            limits.max_num_seqs,
            limits.max_num_sampled,
            pool,
            input_form=form.input_form,
        )
        ids, plan = RecordedIds(program), cast(ops.AttentionPlan, RecordedPlan())
        hidden = _rows(model.hidden_states(ids, ids, plan, cache, num_layers))
        logits = _rows(model.logits(hidden.then(program.take_sampled(hidden.buffer))))
        # Asked for their memory once: a step's own views of tensors would cost it more than all
        # other Python does.
        self._is_finite = program.flag_finite(hidden.buffer).numpy()
        self._hidden = program.output(hidden.buffer)
        self._logits = ScoreRows.of(program.output(logits.buffer))
        program.finish(None if beside is None else beside._program)
        self._program: Program = program

    def run(self, inputs: StepInputs, token_ids: NDArray[np.int64]) -> Computed:
        """Compute a step. token_ids: [T], those that were carried in their place."""
        is_decode = inputs.is_decode
        starts = _decode_starts(inputs.num_seqs) if is_decode else _starts(inputs.query_lens)
        self._program.run(
            StepArrays(
                token_ids,
                inputs.positions,
                inputs.slots,
                starts,
                np.array(inputs.seq_lens, np.int32),
                inputs.block_tables,
                inputs.sampled_rows,
            )
        )
        num_tokens = inputs.num_tokens
        return Computed(
            None if is_decode else self._hidden[:num_tokens],
            self._logits.first(inputs.num_sampled),
            self._is_finite[:num_tokens],
        )


@cache
def _decode_starts(num_seqs: int) -> NDArray[np.int32]:
    """The first row of each sequence of one token, and the end of the last."""
    return np.arange(num_seqs + 1, dtype=np.int32)


def _starts(query_lens: Sequence[int]) -> NDArray[np.int32]:
    starts = np.zeros(len(query_lens) + 1, np.int32)
    np.cumsum(query_lens, out=starts[1:])
    return starts


class NativeSteps:
    """All steps of a model, and for warm-up those of a few of its layers."""

    def __init__(self, model: Decoder, cache: KvCache, limits: Limits, form: NativeForm) -> None:
        """Raises: CannotRecord."""
        self._record = partial(RecordedModel, model, cache, limits, form)
        self._whole = self._record()
        self._few: RecordedModel | None = None

    @property
    def instruction_set(self) -> str:
        """The set of instructions that the kernels use."""
        return isa_in_use(native_library())

    def compute(
        self, inputs: StepInputs, samples: Tensor, num_layers: int | None = None
    ) -> Computed:
        """Run a step. samples: of the step before, of which inputs may carry some."""
        token_ids = inputs.token_ids
        if inputs.has_carried:
            carried = samples.numpy()[inputs.carried]
            token_ids = np.where(inputs.carried >= 0, carried, token_ids)
        if num_layers is None:
            return self._whole.run(inputs, token_ids)
        if self._few is None:
            # What it touches for the first time is what serving's steps will work in.
            self._few = self._record(num_layers, self._whole)
        return self._few.run(inputs, token_ids)

    def end_warm_up(self) -> None:
        """From here on, steps are of all layers."""
        self._few = None


def record_steps(model: Decoder, cache: KvCache, limits: Limits) -> NativeSteps | None:
    """A model's steps by its CPU's kernels; None where they go operation by operation."""
    form = model.placement.native
    if form is None:
        return None
    try:
        steps = NativeSteps(model, cache, limits, form)
    except CannotRecord as reason:
        logger.warning(
            "Recorded no steps, so they run operation by operation, which is slower: %s", reason
        )
        return None
    logger.info(
        "Recorded steps kernels=%s threads=%d dtype=%s inputs=%s",
        steps.instruction_set,
        form.num_threads,
        str(form.dtype).removeprefix("torch."),
        form.input_form.name.lower(),
    )
    return steps


def _rows(x: Tensor) -> RecordedRows:
    """What the model returned, which is not told from a tensor before."""
    if not isinstance(x, RecordedRows):
        raise TypeError(f"the model made a {type(x).__name__} of what is recorded")
    return x
