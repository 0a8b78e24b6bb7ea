"""What a decode step costs the host: to schedule, describe and settle it, without a model.

    python bench/host_step.py --num-seqs 1 8 64 256 --num-waiting 0 5000

A step is launched while the one before it is in flight, as on a GPU, where all of this is hidden as
long as it takes less than a step. Each number is the median over the steps, in microseconds.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.runner.step_inputs import describe_step
from forebay_runtime.scheduling.batch import Batch, Limits
from forebay_runtime.scheduling.blocks import BlockPool
from forebay_runtime.scheduling.scheduler import Scheduler
from forebay_runtime.step_result import Sampled

_BLOCK_SIZE = 16
_PARTS = ("schedule", "describe", "settle")


def main() -> None:
    """Print one row for each number of running and waiting requests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-seqs", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--num-waiting", type=int, nargs="+", default=[0, 5_000])
    parser.add_argument("--prompt-tokens", type=int, default=500)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    print("| running | waiting | schedule | describe | settle | all, us a step |")
    print("|---|---|---|---|---|---|")
    for num_seqs in args.num_seqs:
        for num_waiting in args.num_waiting:
            scheduler = build_scheduler(num_seqs, num_waiting, args.prompt_tokens, args.steps)
            seconds = time_steps(scheduler, num_seqs, args.steps)
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


def time_steps(scheduler: Scheduler, num_seqs: int, num_steps: int) -> dict[str, list[float]]:
    """The seconds of each part of each step, once all run."""
    seconds: dict[str, list[float]] = {part: [] for part in _PARTS}
    flying = Batch(())
    while len(seconds["settle"]) < num_steps:
        start = time.perf_counter()
        batch = scheduler.schedule()
        scheduled = time.perf_counter()
        describe_step(batch, _BLOCK_SIZE)
        described = time.perf_counter()
        scheduler.settle(flying, Sampled((1,) * len(flying.sampled)))
        settled = time.perf_counter()
        if flying.num_tokens == num_seqs == len(flying.sampled):
            parts = (scheduled - start, described - scheduled, settled - described)
            for part, spent in zip(_PARTS, parts, strict=True):
                seconds[part].append(spent)
        flying = batch
    return seconds


if __name__ == "__main__":
    main()
