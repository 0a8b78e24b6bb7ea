"""Runs, before the first request, every shape that requests can bring.

Layers of a kind have the same shapes, so one of each kind runs all of them and the whole model only
a few: that compiles every product and touches every buffer in a fraction of the time. What it
writes to the KV cache is overwritten before it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter as read_clock

import torch
from torch import Tensor

from forebay_kernels.cpu.score_rows import to_tensor
from forebay_runtime.config import StartError
from forebay_runtime.models.row_padding import padded_sizes
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.runner.model_runner import ModelRunner
from forebay_runtime.sampling.sampler import Sampler
from forebay_runtime.scheduling.batch import Batch, Chunk, Limits

_SAMPLING = (
    SamplingParams(max_tokens=1, temperature=0),
    SamplingParams(max_tokens=1, seed=0),
    SamplingParams(max_tokens=1, seed=0, top_k=8, top_p=0.9, min_p=0.01),
    SamplingParams(max_tokens=1, seed=0, temperature=1e3, top_p=0.999),
    SamplingParams(max_tokens=1, temperature=0, num_logprobs=20),
    SamplingParams(max_tokens=1, presence_penalty=1, frequency_penalty=1, repetition_penalty=2),
    SamplingParams(
        max_tokens=1,
        min_tokens=1,
        logit_bias=((0, 1.0),),
        allowed_token_ids=frozenset({0, 1}),
        bad_words=((1,),),
    ),
)
"""Each of the sampler's ways; the fourth keeps more tokens than the first candidates."""
_NUM_PLAIN = 4
"""The first of them, which neither score nor count nor ban."""


class _AllowAll:
    """A constraint that bans nothing."""

    is_complete = False
    error = None

    def __init__(self, vocab_size: int) -> None:
        self._bits = b"\xff" * -(-vocab_size // 8)

    def allowed(self) -> bytes:
        return self._bits

    def accept(self, token_id: int) -> None:
        pass


def run_shapes(runner: ModelRunner, sampler: Sampler) -> None:
    """Run every shape once.

    Raises: StartError if the whole model gives no numbers.
    """
    limits = runner.limits
    # A program has no shapes of its own: what it grows by it takes in its largest step.
    batches = _largest_batches(runner) if runner.is_native else _all_batches(runner)
    for batch in batches:
        sampler.sample(runner.run(batch, num_layers=1), batch)
    _run_scores(runner, sampler)
    for num_seqs in {1, limits.max_num_seqs}:
        batch = _decode_batch(num_seqs, _longest(runner, num_seqs))
        result = runner.run(batch)
        _check_finite(to_tensor(result.logits))
        sampler.sample(result, batch)


def end_warm_up(runner: ModelRunner, stages: Sequence[range]) -> float:
    """From here on what is new is cold; the seconds that the slowest step would take.

    stages: the layers of each, which take turns within a step.
    """
    batch = _prefill_batch(runner.limits, _most_tokens(runner.limits))
    start = read_clock()
    # A GPU has only been told of the step when run returns.
    runner.run(batch, num_layers=1).find_broken()
    elapsed_seconds = read_clock() - start
    runner.end_warm_up()
    layers = runner.model.config.blueprint.layers
    # Each stage ran one layer of each kind that it has.
    num_run = sum(len(set(layers[stage.start : stage.stop])) for stage in stages)
    return elapsed_seconds * len(layers) / num_run


def _check_finite(logits: Tensor) -> None:
    """Such a model would answer every request with the same token, and no one would be told."""
    if not logits.isfinite().all():
        raise StartError(
            "The model computes NaN or infinite scores; its weights are damaged, or too large for "
            "--dtype float16"
        )


def _run_scores(runner: ModelRunner, sampler: Sampler) -> None:
    """Score prompts of every number of rows, pool one, and constrain a token."""
    sizes = runner.model.config.sizes
    hidden = torch.zeros(
        runner.score_rows,
        sizes.hidden_size,
        dtype=runner.model.placement.dtype,
        device=runner.model.placement.device,
    )
    most = runner.score_rows
    for num_rows in (most,) if runner.is_native else padded_sizes(most):
        runner.score(hidden[:num_rows])
    for request in (
        Request("scored", [0, 0], SamplingParams(max_tokens=0, num_prompt_logprobs=20)),
        Request("pooled", [0], SamplingParams(max_tokens=0), pooling="mean"),
        Request("constrained", [0], _SAMPLING[0], constraint=_AllowAll(sizes.vocab_size)),
    ):
        batch = Batch((Chunk.of(request, 0, 1),))
        sampler.sample(runner.run(batch, num_layers=1), batch)


def run_largest(runner: ModelRunner, sampler: Sampler) -> None:
    """Run the shapes that hold the most memory, so that their peak can be measured."""
    for batch in _largest_batches(runner):
        sampler.sample(runner.run(batch, num_layers=1), batch)


def _all_batches(runner: ModelRunner) -> Iterator[Batch]:
    """A batch for every padded number of tokens, and one for every number of decodes."""
    limits = runner.limits
    yield from _largest_batches(runner)
    for num_sampled in reversed(list(padded_sizes(limits.max_num_sampled))):
        if num_sampled > limits.max_num_seqs:
            yield _proposing_batch(runner, min(num_sampled, limits.max_num_sampled))
    # Falling, as each then finds room in what the one before gave back; rising, the heap would
    # grow by twice as much.
    for num_tokens in reversed(list(padded_sizes(_most_tokens(limits)))):
        yield _prefill_batch(limits, min(num_tokens, _most_tokens(limits)))
    for num_seqs in range(1, limits.max_num_seqs + 1):
        yield _decode_batch(num_seqs, _longest(runner, num_seqs))


def _largest_batches(runner: ModelRunner) -> Iterator[Batch]:
    """The most tokens; the largest mask, of a prompt's later part; the most and longest decodes."""
    limits = runner.limits
    longest, most_tokens = limits.max_model_len, _most_tokens(limits)
    yield _prefill_batch(limits, most_tokens)
    num_tokens = min(most_tokens, -(-longest // 2))
    yield Batch((_chunk(0, longest - num_tokens, num_tokens),))
    yield _decode_batch(limits.max_num_seqs, _longest(runner, limits.max_num_seqs))
    if limits.max_num_proposed_tokens:
        yield _proposing_batch(runner, limits.max_num_sampled)


def _most_tokens(limits: Limits) -> int:
    return min(limits.max_num_batched_tokens, limits.max_num_seqs * limits.max_model_len)


def _longest(runner: ModelRunner, num_seqs: int) -> int:
    """The longest sequences that so many can be at once."""
    num_cached_tokens = runner.num_blocks * runner.block_size
    return max(1, min(runner.limits.max_model_len, num_cached_tokens // num_seqs))


def _prefill_batch(limits: Limits, num_tokens: int) -> Batch:
    """As few prompts as hold num_tokens, none of them at its end, so that nothing is sampled."""
    chunks: list[Chunk] = []
    while num_tokens > 0:
        length = min(num_tokens, limits.max_model_len)
        chunks.append(_chunk(len(chunks), 0, length)._replace(catches_up=False))
        num_tokens -= length
    return Batch(tuple(chunks))


def _decode_batch(num_seqs: int, seq_len: int) -> Batch:
    return Batch(tuple(_chunk(index, seq_len - 1, 1) for index in range(num_seqs)))


def _proposing_batch(runner: ModelRunner, num_sampled: int) -> Batch:
    """Decodes of as many requests as can be, with proposed tokens for so many rows in all."""
    num_seqs = min(runner.limits.max_num_seqs, num_sampled)
    longest = _longest(runner, num_seqs)
    chunks: list[Chunk] = []
    for index in range(num_seqs):
        num_rows = min((num_sampled + index) // num_seqs, longest)
        start = longest - num_rows
        # Penalties are not counted for tokens that are only proposed, everywhere.
        sampling = _SAMPLING[index % _NUM_PLAIN]
        request = Request(f"warm-up-{index}", [0] * (start + 1), sampling)
        proposed = (0,) * (num_rows - 1)
        chunk = Chunk.of(request, start, 1)
        chunks.append(chunk._replace(num_tokens=num_rows, proposed=proposed))
    return Batch(tuple(chunks))


def _chunk(index: int, start: int, num_tokens: int) -> Chunk:
    """The end of a request's prompt; its block table stays zeros, so all share block 0."""
    sampling = _SAMPLING[index % len(_SAMPLING)]
    request = Request(f"warm-up-{index}", [0] * (start + num_tokens), sampling)
    return Chunk.of(request, start, num_tokens)
