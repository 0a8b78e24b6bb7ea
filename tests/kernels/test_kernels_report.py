"""docs/kernels-report.md: of what is shipped, and by arithmetic that is told."""

from pathlib import Path

import pytest

pytest.importorskip("triton")

from forebay_kernels.gpu.architecture import H100, H200, SHIPPED
from forebay_kernels.gpu.compiling.inventory import shipped
from forebay_kernels.gpu.compiling.report import roofline_seconds
from forebay_kernels.gpu.variant import Launch, Variant

REPORT = Path(__file__).resolve().parents[2] / "docs/kernels-report.md"
COLUMNS = 3


def reported_names(index: int) -> set[str]:
    """The kernels that the report has registers of, for one of the architectures."""
    resources, _, _ = REPORT.read_text().partition("## How fast")
    rows = [line.strip("| ").split(" | ") for line in resources.splitlines() if line[:2] == "| "]
    # Behind the head and the line under it.
    return {row[0] for row in rows[2:] if row[1 + COLUMNS * index] != "–"}


@pytest.mark.parametrize("index", range(len(SHIPPED)), ids=[each.name for each in SHIPPED])
def test_the_report_is_of_what_is_shipped(index):
    """Where this fails, run `make kernels-report`."""
    assert reported_names(index) == {variant.name for variant in shipped(SHIPPED[index])}


@pytest.mark.parametrize(
    ("types", "rate"),
    [
        pytest.param({"x": "*bf16"}, 989.5e12, id="16 bits"),
        pytest.param({"x": "*i8"}, 1979e12, id="8 bits"),
    ],
)
def test_an_estimate_is_bytes_and_operations_by_the_datasheet(types, rate):
    variant = Variant(
        "any", None, types, {}, Launch({}), uses_tensor_cores=True, bytes_moved=48, flops=10
    )

    assert roofline_seconds(variant, H200) == (48 / 4.8e12, 10 / rate)
    assert roofline_seconds(variant, H100)[0] == 48 / 3.35e12
