"""Launches of gemm_w8a8; as gemm_quant's, whose layout of weights it shares."""

from forebay_kernels.gpu.architecture import KIB
from forebay_kernels.gpu.launch_tables.table import LaunchTable, Row
from forebay_kernels.gpu.variant import Launch

_MANY = range(65, 1 << 31)

TABLE = LaunchTable(
    "gemm_w8a8",
    (
        Row(
            Launch({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 128}, 2, 4),
            when={"num_rows": range(1, 17)},
        ),
        Row(
            Launch({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128}, 8, 3, shared_bytes=112 * KIB),
            ("sm_90", "sm_100"),
            {"num_rows": _MANY},
        ),
        Row(
            Launch({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}, 4, 3),
        ),
    ),
)
