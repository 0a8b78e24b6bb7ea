"""What a recorded step is made of: the time of each kind of instruction, on the step's own arrays.

Processor seconds of the whole step, of all threads together, stand beside those of the clock: they
hardly change where other programs take the processors away.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from forebay_kernels.cpu.program import Program
from forebay_kernels.cpu.step import StepArrays

_REPEATS = 12


@dataclass(frozen=True)
class Timed:
    """The least of several runs; of which step, and which part of it."""

    step: str
    part: str
    seconds: float
    cpu_seconds: float | None = None


class LastStep:
    """The step that was run last, and by which program; neither where no step was recorded."""

    program: Program | None = None
    arrays: StepArrays

    def parts(self) -> list[Timed]:
        """All of it, then each kind of instruction that takes time."""
        if self.program is None:
            return []
        num_tokens, num_seqs = len(self.arrays.token_ids), len(self.arrays.seq_lens)
        longest = int(self.arrays.seq_lens.max())
        step = f"{num_tokens} tokens of {num_seqs} sequences up to {longest} long"
        found = [Timed(step, "all", *_least(self.program, self.arrays))]
        runs = [self.program.time_operations(self.arrays) for _ in range(_REPEATS)]
        for kind in runs[0]:
            nanoseconds = min(run[kind] for run in runs)
            if nanoseconds:
                found.append(Timed(step, kind, nanoseconds / 1e9))
        return found


@contextmanager
def last_step() -> Iterator[LastStep]:
    """Keep each step's arrays that a program runs within the block."""
    last, run = LastStep(), Program.run

    def run_and_keep(self: Program, arrays: StepArrays) -> None:
        copies = {name: array.copy() for name, array in arrays._asdict().items()}
        last.program, last.arrays = self, arrays._replace(**copies)
        run(self, arrays)

    Program.run = run_and_keep  # type: ignore[method-assign]
    try:
        yield last
    finally:
        Program.run = run  # type: ignore[method-assign]


def _least(program: Program, arrays: StepArrays) -> tuple[float, float]:
    wall, cpu = [], []
    for _ in range(_REPEATS):
        start, cpu_start = time.perf_counter(), time.process_time()
        program.run(arrays)
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    return min(wall), min(cpu)


def table_of_parts(found: list[Timed]) -> list[str]:
    """Markdown: a part's share is of its step's time."""
    lines = ["| step | part | ms | share | ms of the processors |"]
    lines.append("| --- | --- | ---: | ---: | ---: |")
    whole = {timed.step: timed.seconds for timed in found if timed.part == "all"}
    for timed in found:
        share = f"{timed.seconds / whole[timed.step]:.0%}"
        cpu = "" if timed.cpu_seconds is None else f"{1e3 * timed.cpu_seconds:.2f}"
        lines.append(
            f"| {timed.step} | {timed.part} | {1e3 * timed.seconds:.2f} | {share} | {cpu} |"
        )
    return lines
