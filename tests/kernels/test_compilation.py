"""What is shipped, compiled ahead of time for each architecture: without a spill, within the shared
memory, and on tensor cores where they are due."""

from dataclasses import replace

import pytest

pytest.importorskip("triton")

from bad_kernels import product_variant
from compilation_cover import choose_cover
from forebay_kernels.gpu.architecture import KIB, SHIPPED, SM_80, SM_90
from forebay_kernels.gpu.compiling.compilation import compile_variant, faults
from forebay_kernels.gpu.compiling.inventory import shipped
from forebay_kernels.gpu.compiling.parallel_compilation import Job, compile_jobs
from forebay_kernels.gpu.variant import Launch

GOOD = Launch({"M": 64, "N": 64, "K": 64}, num_stages=3, shared_bytes=49 * KIB)
TOO_FEW_WARPS = Launch({"M": 64, "N": 128, "K": 64}, num_warps=1, shared_bytes=163 * KIB)
TOO_MANY_STAGES = Launch({"M": 128, "N": 64, "K": 128}, 4, num_stages=6, shared_bytes=400 * KIB)
SMALL = Launch({"M": 16, "N": 16, "K": 16})


def faults_of(variant, architecture):
    return faults(variant, compile_variant(variant, architecture), architecture)


@pytest.mark.parametrize("architecture", SHIPPED, ids=lambda each: each.name)
def test_a_good_kernel_has_no_fault(architecture):
    assert faults_of(product_variant(GOOD), architecture) == ()


@pytest.mark.parametrize(
    ("variant", "architecture", "fault"),
    [
        pytest.param(product_variant(TOO_FEW_WARPS), SM_80, "a thread spill out", id="spills"),
        pytest.param(product_variant(TOO_MANY_STAGES), SM_90, "than 232448", id="over the limit"),
        pytest.param(
            product_variant(replace(GOOD, shared_bytes=8)), SM_90, "than 8", id="more than told"
        ),
        pytest.param(product_variant(SMALL, uses_dot=False), SM_90, "no tensor", id="no mma"),
    ],
)
def test_a_bad_kernel_is_found_out(variant, architecture, fault):
    [found] = faults_of(variant, architecture)

    assert fault in found


def faults_by_job(jobs):
    results = list(compile_jobs(jobs))
    assert len(results) == len(jobs) > 0
    return {result.job: result.faults for result in results if result.faults}


def test_each_kernel_and_branch_compiles_without_fault():
    assert faults_by_job(choose_cover()) == {}


@pytest.mark.long
@pytest.mark.parametrize("architecture", SHIPPED, ids=lambda each: each.name)
def test_all_that_is_shipped_compiles_without_fault(architecture):
    jobs = [Job(architecture.name, variant.name) for variant in shipped(architecture)]

    assert faults_by_job(jobs) == {}
