"""Gates, caps and look-ups: enough bytes a thread for whole vectors, and no more."""

from forebay_kernels.gpu.launch_tables.table import LaunchTable, Row
from forebay_kernels.gpu.variant import Launch

TABLE = LaunchTable("elementwise", (Row(Launch({"TILE": 1024}, num_warps=4)),))
