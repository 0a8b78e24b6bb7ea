"""What a decode step costs the host: all but the model, part by part.

    python bench/host_step.py --num-seqs 1 8 64 256 --num-waiting 0 5000

A step is launched while the one before it is in flight, as on a GPU, where all of this is hidden as
long as it takes less than a step. On a CPU nothing hides it, and a model's step leaves the
processor's caches full of weights: with --cold so much memory is read where it would run. Each
number is the median over the steps, in microseconds. Tokens are sampled from 49,152.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from itertools import pairwise
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray

from forebay_kernels.cpu.score_rows import ScoreRows
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.runner.step_inputs import describe_step
from forebay_runtime.sampling.sampler import Sampler
from forebay_runtime.scheduling.batch import Batch, Limits
from forebay_runtime.scheduling.blocks import BlockPool
from forebay_runtime.scheduling.scheduler import Scheduler
from forebay_runtime.step_result import StepResult

_BLOCK_SIZE = 16
_NUM_TOKENS = 49_152
_PARTS = ("schedule", "describe", "sample", "settle", "load")
_COLD = np.ones(64 * 1024**2, np.uint8)
"""What a model's weights are read instead of."""


def main() -> None:
    """Print one row for each number of running and waiting requests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-seqs", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--num-waiting", type=int, nargs="+", default=[0, 5_000])
    parser.add_argument("--prompt-tokens", type=int, default=500)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--top-p", type=float, default=None, help="sample; else greedy")
    parser.add_argument("--cold", action="store_true", help="with caches as a model leaves them")
    args = parser.parse_args()
    sampling = SamplingParams(args.prompt_tokens + 2 * args.steps + 100, temperature=0)
    if args.top_p is not None:
        sampling = replace(sampling, temperature=0.8, top_p=args.top_p)
    print(f"| running | waiting | {' | '.join(_PARTS)} | all, us a step |")
    print("|---|---" + "|---" * len(_PARTS) + "|---|")
    for num_seqs in args.num_seqs:
        for num_waiting in args.num_waiting:
            scheduler = build_scheduler(num_seqs, num_waiting, args.prompt_tokens, args.steps)
            for request in scheduler.waiting:
                request.sampling = sampling
            seconds = time_steps(scheduler, num_seqs, args.steps, _COLD if args.cold else _COLD[:0])
            cells = [f"{1e6 * median(seconds[part]):.0f}" for part in _PARTS]
            whole = 1e6 * median(map(sum, zip(*seconds.values(), strict=True)))
            print(f"| {num_seqs} | {num_waiting} | {' | '.join(cells)} | {whole:.0f} |")


def build_scheduler(
    num_seqs: int, num_waiting: int, num_prompt_tokens: int, num_steps: int
) -> Scheduler:
    """A scheduler with so many requests that may run at a time, and so many more."""
    num_tokens = num_prompt_tokens + 2 * num_steps + 100
    limits = Limits(num_seqs, num_seqs * num_prompt_tokens, num_tokens)
    pool = BlockPool((num_seqs + 1) * -(-num_tokens // _BLOCK_SIZE), _BLOCK_SIZE)
    scheduler = Scheduler(pool, limits, frozenset({0}))
    sampling = SamplingParams(num_tokens, temperature=0)
    for index in range(num_seqs + num_waiting):
        scheduler.add(Request(str(index), [1 + index % 99] * num_prompt_tokens, sampling))
    return scheduler


def time_steps(
    scheduler: Scheduler, num_seqs: int, num_steps: int, cold: NDArray[np.uint8]
) -> dict[str, list[float]]:
    """The seconds of each part of each step, once all run. cold: what is read in between."""
    seconds: dict[str, list[float]] = {part: [] for part in _PARTS}
    sampler, logits = Sampler(), build_logits(num_seqs)
    flying = Batch(())
    while len(seconds["settle"]) < num_steps:
        cold.sum()
        times = [time.perf_counter()]
        batch = scheduler.schedule()
        times.append(time.perf_counter())
        describe_step(batch, _BLOCK_SIZE)
        times.append(time.perf_counter())
        cold.sum()
        run = time.perf_counter() - times[-1]
        sampled = sampler.sample(StepResult(logits.first(len(flying.sampled))), flying).wait()
        times.append(time.perf_counter() - run)
        scheduler.settle(flying, sampled)
        times.append(time.perf_counter() - run)
        scheduler.load_now()
        times.append(time.perf_counter() - run)
        if flying.num_tokens == num_seqs == len(flying.sampled):
            for part, (before, after) in zip(_PARTS, pairwise(times), strict=True):
                seconds[part].append(after - before)
        flying = batch
    return seconds


def build_logits(num_seqs: int) -> ScoreRows:
    """Scores of which a few are much the best, and none of those ends a request."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(num_seqs, _NUM_TOKENS, generator=generator)
    logits[:, 1:64] += 12
    logits[:, 0] = -100
    return ScoreRows.of(logits)


if __name__ == "__main__":
    main()
