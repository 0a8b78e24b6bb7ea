"""Launches of moe_gemm, by the rows that an expert sees on average.

A decode step's experts see few, and reading their weights is all; a prompt's see many.
"""

from forebay_kernels.gpu.architecture import KIB
from forebay_kernels.gpu.launch_tables.table import LaunchTable, Row
from forebay_kernels.gpu.variant import Launch

_FEW = range(0, 17)

TABLE = LaunchTable(
    "moe_gemm",
    (
        Row(Launch({"BLOCK_M": 16, "BLOCK_N": 64}, 2, 4), when={"num_rows": _FEW, "bits": (4, 8)}),
        Row(
            Launch({"BLOCK_M": 16, "BLOCK_N": 64}, 4, 4, shared_bytes=82 * KIB),
            when={"num_rows": _FEW, "bits": 16},
        ),
        Row(Launch({"BLOCK_M": 16, "BLOCK_N": 32}, 4, 2), when={"num_rows": _FEW}),
        Row(
            Launch({"BLOCK_M": 64, "BLOCK_N": 128}, 8, 3, shared_bytes=80 * KIB),
            when={"bits": (4, 8, 16)},
        ),
        Row(Launch({"BLOCK_M": 64, "BLOCK_N": 64}, 4, 2)),
    ),
)

BLOCK_SIZES = (16, 64)
"""Each BLOCK_M that is in the table."""
