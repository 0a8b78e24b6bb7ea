"""Sampling: a survey by many small programs, and a draw by one large program a row."""

from forebay_kernels.gpu.launch_tables.table import LaunchTable, Row
from forebay_kernels.gpu.variant import Launch

SURVEY = LaunchTable("survey", (Row(Launch({"HEATS": 16}, num_warps=8)),))
DRAW = LaunchTable(
    "draw",
    (
        Row(Launch({"TILE": 1024}, num_warps=4), when={"size": range(1025)}),
        Row(Launch({"TILE": 2048}, num_warps=16)),
    ),
)
