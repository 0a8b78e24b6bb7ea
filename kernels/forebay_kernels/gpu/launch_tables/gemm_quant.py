"""Launches of gemm_quant: few rows are bound by memory, many by tensor cores.

Up to 16 rows two warps take 64 outputs: what a warp computes a weight is least where its tile is
large, and on sm_90 a tile for two warps is multiplied by mma.sync, which takes the codes from
shared memory four neighbours at a time; wgmma would take two. Reasoned from the instructions of
the loops, 2.6 to 3.1 a weight, and from the memory that a multiprocessor asks for at a time.
With many rows, what dequantising costs is shared by as many as registers have room for.
BLOCK_K is the group where there are groups.
"""

from forebay_kernels.gpu.architecture import KIB
from forebay_kernels.gpu.launch_tables.table import LaunchTable, Row
from forebay_kernels.gpu.variant import Launch

_MANY = range(65, 1 << 31)

TABLE = LaunchTable(
    "gemm_quant",
    (
        Row(Launch({"BLOCK_M": 8, "BLOCK_N": 64}, 2, 4), when={"num_rows": range(1, 9)}),
        Row(Launch({"BLOCK_M": 16, "BLOCK_N": 64}, 2, 4), when={"num_rows": range(9, 17)}),
        Row(
            Launch({"BLOCK_M": 128, "BLOCK_N": 128}, 8, 3, shared_bytes=112 * KIB),
            ("sm_90", "sm_100"),
            {"num_rows": _MANY},
        ),
        # Without wgmma and tcgen05 the inputs pass through registers too.
        Row(Launch({"BLOCK_M": 64, "BLOCK_N": 128}, 8, 3), when={"num_rows": _MANY}),
        Row(Launch({"BLOCK_M": 64, "BLOCK_N": 64}, 4, 2)),
    ),
)
