"""How launch parameters are found: by architecture and facts, never beyond a device's memory."""

from dataclasses import replace

import pytest

from forebay_kernels.gpu.architecture import KIB, SHIPPED, SM_80, SM_90, SM_100, architecture_at
from forebay_kernels.gpu.launch_tables import LaunchTable, Row
from forebay_kernels.gpu.variant import Launch

WIDE = Launch({"BLOCK": 128}, shared_bytes=200 * KIB)
HOPPER = Launch({"BLOCK": 64}, num_warps=8)
SMALL_HEADS = Launch({"BLOCK": 32})
ANYWHERE = Launch({"BLOCK": 16})

TABLE = LaunchTable(
    "attention",
    (
        Row(WIDE, when={"dtype": "bf16", "head_dim": 128}),
        Row(HOPPER, generations=("sm_90",), when={"dtype": ("bf16", "fp16")}),
        Row(SMALL_HEADS, when={"head_dim": range(1, 65)}),
        Row(ANYWHERE),
    ),
)


@pytest.mark.parametrize(
    ("architecture", "dtype", "head_dim", "launch"),
    [
        pytest.param(SM_100, "bf16", 128, WIDE, id="the first row that holds"),
        pytest.param(SM_80, "bf16", 128, ANYWHERE, id="not one with more memory than there is"),
        pytest.param(SM_90, "fp16", 64, HOPPER, id="by generation and one of several values"),
        pytest.param(SM_80, "fp16", 64, SMALL_HEADS, id="by a range, its end"),
        pytest.param(SM_80, "fp16", 65, ANYWHERE, id="past the range's end"),
        pytest.param(architecture_at(89), "bf16", 128, ANYWHERE, id="Ada takes sm_80's rows"),
        pytest.param(architecture_at(103), "bf16", 128, WIDE, id="sm_103 takes sm_100's rows"),
        pytest.param(architecture_at(130), "bf16", 128, ANYWHERE, id="unknown: the least memory"),
    ],
)
def test_the_first_row_that_holds_is_taken(architecture, dtype, head_dim, launch):
    assert TABLE.choose(architecture, dtype=dtype, head_dim=head_dim) is launch


def test_a_fact_that_a_row_asks_for_must_be_given():
    with pytest.raises(KeyError, match="dtype"):
        TABLE.choose(SM_90, head_dim=128)


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(Row(ANYWHERE, generations=("sm_90",)), id="for one generation"),
        pytest.param(Row(ANYWHERE, when={"head_dim": 64}), id="on a condition"),
        pytest.param(
            Row(replace(ANYWHERE, shared_bytes=48 * KIB + 1)), id="with more memory than all have"
        ),
    ],
)
def test_a_table_whose_last_row_does_not_hold_anywhere_is_refused(last):
    with pytest.raises(ValueError, match="last row of attention's launch table"):
        LaunchTable("attention", (last,))


def test_a_gpu_older_than_the_kernels_is_refused():
    with pytest.raises(ValueError, match=r"7\.5; the kernels need 8\.0"):
        architecture_at(75)


@pytest.mark.parametrize("architecture", SHIPPED, ids=lambda each: each.name)
def test_the_shipped_architectures_are_what_their_capability_is_found_as(architecture):
    assert architecture_at(architecture.capability) is architecture
