"""The CPU's kernels held against this machine's own limits: memory's rate, and the products' peak.

    python bench/cpu_kernels.py [--model MODEL.gguf] [--shapes SmolLM2-135M 1B 7B] [--out FILE]

First the limits are measured: reading a buffer of the weights' size and one of 2 GiB, and
multiplying in registers, on one thread and on all. Then products of each shape, format and batch,
attention, and with --model whole steps. Each row has its time, the share of both limits, and how
much longer torch's own operator takes. Needs no peers and, but for --model, no files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from forebay_runtime.start.threads import prepare_libraries

prepare_libraries()

import torch  # noqa: E402
from cpu_parts import attention, products, whole_model  # noqa: E402
from cpu_parts.limits import KINDS, Limits, compile_loops, measure_limits  # noqa: E402
from cpu_parts.row import Row, table_of, table_of_limits  # noqa: E402
from cpu_parts.step_parts import Timed, table_of_parts  # noqa: E402
from serving.machine import describe_machine, describe_versions  # noqa: E402

PARTS = ("products", "attention", "model")
_WEIGHTS_BYTES = 96 * 2**20
"""Of SmolLM2-135M at four bits."""


def main() -> int:
    """Measure and print; 0."""
    parser = build_parser()
    options = parser.parse_args()
    if options.model is not None and not options.model.exists():
        parser.error(f"{options.model} is not there")
    random.seed(0)
    torch.manual_seed(0)
    machine = describe_machine()
    num_threads = len(os.sched_getaffinity(0))
    print("# The CPU's kernels against the machine's limits\n")
    described = {**machine, **describe_versions(None, None)}
    print("\n".join(f"- {name}: {value}" for name, value in described.items()))
    loops = compile_loops()
    all_limits = [
        measure_limits(loops, count, options.weights_mib * 2**20, options.big_mib * 2**20)
        for count in sorted({1, num_threads})
    ]
    print("\n".join(["", *table_of_limits(all_limits)]), flush=True)
    limits = all_limits[-1]
    rows: list[Row] = []
    for title, part in parts_of(options):
        found = list(part)
        rows += found
        print("\n".join(["", f"## {title}", "", *table_of(found, limits)]), flush=True)
    parts: list[Timed] = []
    if "model" in options.parts and options.model is not None:
        found, parts = measure_model(options)
        rows += found
        print("\n".join(["", f"## Steps of {options.model.name}", "", *table_of(found, limits)]))
        print("\n".join(["", *table_of_parts(parts)]), flush=True)
    if options.out is not None:
        options.out.write_text(
            json.dumps(document_of(machine, all_limits, rows, parts), indent=1) + "\n"
        )
    return 0


def build_parser() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--parts", nargs="+", choices=PARTS, default=PARTS, help="what is measured (all)")
    shapes = ["SmolLM2-135M", "1B"]
    add(
        "--shapes",
        nargs="+",
        choices=products.MODELS,
        default=shapes,
        help=f"models whose products and attention are timed ({' '.join(shapes)})",
    )
    names = [kept.name for kept in products.FORMATS]
    shown = "; ".join(names)
    add("--formats", nargs="+", choices=names, metavar="NAME", help=f"each quoted, of: {shown}")
    batches = " ".join(map(str, products.BATCHES))
    add(
        "--batches",
        nargs="+",
        type=int,
        default=products.BATCHES,
        metavar="ROWS",
        help=f"rows of inputs that a product takes ({batches})",
    )
    add("--no-torch", action="store_true", help="do not time torch's own operators")
    add("--model", type=Path, help="what whole steps are measured of")
    add("--kind", choices=KINDS, default="int8", help="the peak that whole steps are held to")
    serves = "--model's, as forebay serve has it (%(default)s)"
    add("--dtype", default="auto", help=serves)
    add("--quantization", default="None", help=serves)
    add("--kv-cache-dtype", default="auto", help=serves)
    buffer = "MiB of the buffer by which memory's rate is measured: "
    add(
        "--weights-mib",
        type=int,
        default=_WEIGHTS_BYTES // 2**20,
        metavar="MIB",
        help=f"{buffer}as large as the weights (%(default)s)",
    )
    add(
        "--big-mib",
        type=int,
        default=2048,
        metavar="MIB",
        help=f"{buffer}larger than all caches (%(default)s)",
    )
    add("--out", type=Path, help="where all of it is written as JSON")
    return parser


def parts_of(options: argparse.Namespace) -> Iterator[tuple[str, Iterator[Row]]]:
    """Titles, and what measures."""
    formats = [
        kept for kept in products.FORMATS if not options.formats or kept.name in options.formats
    ]
    if "products" in options.parts:
        for model in options.shapes:
            yield (
                f"Products of {model}",
                products.measure(model, formats, options.batches, has_torch=not options.no_torch),
            )
    if "attention" in options.parts:
        dtypes = (torch.float32, torch.float16)
        rows = attention.measure(options.shapes, dtypes, has_torch=not options.no_torch)
        yield "Attention, a layer's", rows


def measure_model(options: argparse.Namespace) -> tuple[list[Row], list[Timed]]:
    """Whole steps, and their parts."""
    flags = whole_model.Flags(options.dtype, options.quantization, options.kv_cache_dtype)
    return whole_model.measure(options.model, options.kind, (1, 8, 32), (128, 1024), flags)


def document_of(
    machine: dict[str, object], all_limits: list[Limits], rows: list[Row], parts: list[Timed]
) -> dict[str, object]:
    """For JSON."""
    return {
        "machine": machine,
        "limits": [vars(limits) for limits in all_limits],
        "parts": [vars(timed) for timed in parts],
        "rows": [row.to_document(all_limits[-1]) for row in rows],
    }


if __name__ == "__main__":
    sys.exit(main())
