"""Rotation with cache write: heads of a token that a program takes, 16 bytes of a half a thread."""

from forebay_kernels.gpu.launch_tables.table import LaunchTable, Row
from forebay_kernels.gpu.variant import Launch

TABLE = LaunchTable(
    "rotate_and_write",
    (
        Row(Launch({"HEADS": 16}, num_warps=2), when={"head_dim": range(65)}),
        Row(Launch({"HEADS": 8}, num_warps=2), when={"head_dim": range(129)}),
        Row(Launch({"HEADS": 4}, num_warps=2)),
    ),
)
