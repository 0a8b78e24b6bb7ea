"""Launches of attention for sequences with one query each.

TILE: keys. The kernel waits for memory alone, so two to four programs share a multiprocessor, each
with several tiles on their way: 64 KiB and more in all. Numbers of one byte take more registers to
be made wide, and half the room, so their tiles are smaller and more of them are on their way.
"""

from forebay_kernels.gpu.architecture import KIB
from forebay_kernels.gpu.launch_tables.table import LaunchTable, Row
from forebay_kernels.gpu.variant import Launch

_HALVES = ("bf16", "fp16")
_NARROW = ("fp8", "fp8_bits", "int8", "int4")

TABLE = LaunchTable(
    "attention_decode",
    (
        Row(
            Launch({"TILE": 64}, num_stages=3, shared_bytes=16 * KIB),
            when={"dtype": _HALVES, "kind": "int4", "width": range(65)},
        ),
        Row(
            Launch({"TILE": 64}, num_stages=4, shared_bytes=32 * KIB),
            when={"dtype": _HALVES, "kind": _NARROW, "width": range(65)},
        ),
        Row(
            Launch({"TILE": 64}, num_stages=4, shared_bytes=34 * KIB),
            when={"dtype": _HALVES, "kind": "int4", "width": 128},
        ),
        Row(
            Launch({"TILE": 32}, num_stages=4, shared_bytes=34 * KIB),
            when={"dtype": _HALVES, "kind": _NARROW, "width": 128},
        ),
        Row(
            Launch({"TILE": 16}, num_stages=4, shared_bytes=36 * KIB),
            when={"dtype": _HALVES, "kind": _NARROW, "width": 256},
        ),
        Row(
            Launch({"TILE": 128}, num_stages=3, shared_bytes=74 * KIB),
            when={"dtype": _HALVES, "width": range(65)},
        ),
        Row(
            Launch({"TILE": 64}, num_stages=3, shared_bytes=74 * KIB),
            when={"dtype": _HALVES, "width": 128},
        ),
        Row(
            Launch({"TILE": 32}, num_stages=3, shared_bytes=78 * KIB),
            when={"dtype": _HALVES, "width": 256},
        ),
        Row(Launch({"TILE": 16}, num_stages=1)),
    ),
)
