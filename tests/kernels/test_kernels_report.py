"""The kernels' report: estimates by arithmetic that is told."""

import pytest

pytest.importorskip("triton")

from forebay_kernels.gpu.architecture import H100, H200
from forebay_kernels.gpu.compiling.report import roofline_seconds
from forebay_kernels.gpu.variant import Launch, Variant


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
