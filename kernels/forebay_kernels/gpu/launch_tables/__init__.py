"""Launch parameters, measured or reasoned once and written down: a file a kernel, each a TABLE.

A launcher and `variants` ask the same table, so that what is compiled is what is launched.
"""

from forebay_kernels.gpu.launch_tables.table import LaunchTable, Row

__all__ = ["LaunchTable", "Row"]
