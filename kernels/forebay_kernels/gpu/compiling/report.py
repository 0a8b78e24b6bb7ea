"""What every shipped kernel takes, and how fast it could be at most: `make kernels-report`.

Written as Markdown. Registers, shared memory and occupancy are of the compiled kernels; the times
are estimates by datasheets, and nothing here was measured.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import triton

from forebay_kernels.gpu.architecture import H100, H200, SHIPPED, SM_90, Gpu
from forebay_kernels.gpu.compiling.compilation import Resources
from forebay_kernels.gpu.compiling.inventory import shipped
from forebay_kernels.gpu.compiling.parallel_compilation import Job, compile_jobs
from forebay_kernels.gpu.variant import Variant

_ESTIMATED = (H100, H200)
_HEAD = """# What the kernels take

Written by `make kernels-report`, which compiles every kernel that is shipped, for {architectures},
with Triton {version}. **Nothing in this file was measured on a GPU.**

A name says the kernel and what it is compiled for: `d` the size of a head, `r` how much of it is
rotated, `h` and `k` query and KV heads, `g` inputs of a group (0: a whole row), `n` the width of a
row, `m` or two numbers with `x` a tile, `e` experts, `b` tokens of a block of the KV cache or, in
`moe_gemm`, bits of a weight; then types, the kind of cache (`fp8_bits`: where no instruction reads
FP8), and what else is compiled in (`cap`, `sinks`, `invariant`, `zeros`, `normed`). Each
architecture's columns are registers of a thread, KiB of shared memory of a program, and the share
of a multiprocessor's warps that can be there at a time; a dash: the architecture takes another
variant.

"""
_ESTIMATES = """
## How fast they could be: an estimate

Of one launch at the size that is stated: the bytes that it cannot but read and write and the
operations that it cannot but do, each by what the GPU's datasheet says of it, and the longer of the
two times. No kernel is as fast as this, and how near one comes only a GPU can say: `bench/gpu.py`.
Kernels whose work hangs on lengths or on chance, attention among them, have no such size.

"""


def main(path: str) -> None:
    """Compile all that is shipped, and write the report."""
    jobs = [Job(each.name, variant.name) for each in SHIPPED for variant in shipped(each)]
    found = {}
    for result in compile_jobs(jobs):
        if result.resources is None:
            raise ValueError(f"{result.job.variant} {result.faults[0]}")
        found[result.job] = result.resources
        print(f"{len(found)} of {len(jobs)}", end="\r", file=sys.stderr, flush=True)
    head = _HEAD.format(
        architectures=", ".join(each.name for each in SHIPPED), version=triton.__version__
    )
    text = "".join((head, *_resource_table(found), _ESTIMATES, *_estimate_table(shipped(SM_90))))
    Path(path).write_text(text)


def _resource_table(found: dict[Job, Resources]) -> Iterator[str]:
    columns = [f"{each.name} {what}" for each in SHIPPED for what in ("reg", "KiB", "warps")]
    yield from _table_head(("kernel", *columns))
    for name in sorted({job.variant for job in found}):
        cells: list[str] = []
        for architecture in SHIPPED:
            cells += _cells(found.get(Job(architecture.name, name)))
        yield _line((name, *cells))


def _cells(resources: Resources | None) -> tuple[str, str, str]:
    if resources is None:
        return ("–",) * 3
    kib = f"{resources.shared_bytes / 1024:.0f}"
    return str(resources.registers), kib, f"{resources.occupancy:.0%}"


def _estimate_table(variants: Iterable[Variant]) -> Iterator[str]:
    names = [f"{gpu.name}, us at least" for gpu in _ESTIMATED]
    yield from _table_head(("kernel", "size", "MB", "GFLOP", *names, "bound by"))
    for variant in sorted(variants, key=lambda each: each.name):
        if not variant.bytes_moved:
            continue
        times = [roofline_seconds(variant, gpu) for gpu in _ESTIMATED]
        yield _line(
            (
                variant.name,
                variant.sized_for,
                f"{variant.bytes_moved / 1e6:.1f}",
                f"{variant.flops / 1e9:.1f}",
                *(f"{1e6 * max(pair):.1f}" for pair in times),
                "memory" if times[-1][0] >= times[-1][1] else "arithmetic",
            )
        )


def roofline_seconds(variant: Variant, gpu: Gpu) -> tuple[float, float]:
    """The least seconds that a launch's bytes take, and its operations.

    Source: Williams et al. 2009 (Roofline).
    """
    is_int8 = variant.uses_tensor_cores and variant.signature.get("x") == "*i8"
    rate = gpu.int8_per_second if is_int8 else gpu.flops_per_second
    return variant.bytes_moved / gpu.bytes_per_second, variant.flops / rate


def _table_head(columns: Sequence[str]) -> Iterator[str]:
    yield _line(columns)
    yield _line(["---", *["--:"] * (len(columns) - 1)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    main(*sys.argv[1:])
