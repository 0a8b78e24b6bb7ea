"""Launches of gemm_dense: one for all numbers of rows where results must not tell how many.

64 rows are few enough that a single one waits for memory alone, and enough for a prompt to keep
tensor cores busy half of the time.
"""

from forebay_kernels.gpu.architecture import KIB
from forebay_kernels.gpu.launch_tables.table import LaunchTable, Row
from forebay_kernels.gpu.variant import Launch

TABLE = LaunchTable(
    "gemm_dense",
    (
        Row(
            Launch({"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 128}, 4, 4, shared_bytes=80 * KIB),
            when={"num_rows": range(1, 17), "is_wide": False},
        ),
        Row(
            Launch({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}, 4, 4, shared_bytes=66 * KIB),
            when={"is_wide": False},
        ),
        Row(Launch({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 64}, 4, 2)),
    ),
)
