"""RMSNorm: a row in one tile up to 8192 numbers, and some 16 bytes or two of it a thread."""

from forebay_kernels.gpu.launch_tables.table import LaunchTable, Row
from forebay_kernels.gpu.variant import Launch

TABLE = LaunchTable(
    "rms_norm",
    (
        Row(Launch({"TILE": 512}, num_warps=1), when={"size": range(513)}),
        Row(Launch({"TILE": 1024}, num_warps=4), when={"size": range(1025)}),
        Row(Launch({"TILE": 2048}, num_warps=4), when={"size": range(2049)}),
        Row(Launch({"TILE": 4096}, num_warps=8), when={"size": range(4097)}),
        Row(Launch({"TILE": 8192}, num_warps=16)),
    ),
)
