"""Compiles many shipped variants side by side, in processes of their own.

A kernel cannot be sent to a process, so each finds it by name in an inventory of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context

from forebay_kernels.gpu.architecture import SHIPPED, Architecture
from forebay_kernels.gpu.compiling.compilation import Resources, compile_variant, faults
from forebay_kernels.gpu.compiling.inventory import shipped
from forebay_kernels.gpu.variant import Variant


@dataclass(frozen=True)
class Job:
    """A shipped variant by name, for an architecture by name."""

    architecture: str
    variant: str


@dataclass(frozen=True)
class Result:
    """What came of a job: no resources where it did not compile, which is a fault then."""

    job: Job
    resources: Resources | None
    faults: tuple[str, ...]


def compile_jobs(jobs: Iterable[Job]) -> Iterator[Result]:
    """Compile on all processors that there are; results as they come."""
    num_workers = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(num_workers, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(compile_job, job) for job in jobs]):
            yield future.result()


def compile_job(job: Job) -> Result:
    """Compile one; whatever goes wrong is its fault."""
    architecture = next(each for each in SHIPPED if each.name == job.architecture)
    variant = _shipped_by_name(architecture)[job.variant]
    try:
        resources = compile_variant(variant, architecture)
    except Exception as error:
        return Result(job, None, (f"does not compile: {type(error).__name__}: {error}",))
    return Result(job, resources, faults(variant, resources, architecture))


@cache
def _shipped_by_name(architecture: Architecture) -> dict[str, Variant]:
    return {variant.name: variant for variant in shipped(architecture)}
