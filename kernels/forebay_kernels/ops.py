"""The one door to the kernels: models import operations from here and never ask which runs.

All names stand for torch implementations so far; where a device gets a kernel of its own, the
choice is made in this file.
"""

from forebay_kernels.attention import AttentionPlan, paged_attention, plan_attention
from forebay_kernels.elementwise import rms_norm, rope_table, rotate, silu_mul, write_kv
from forebay_kernels.linear import Linear
from forebay_kernels.ragged import Ragged

__all__ = [
    "AttentionPlan",
    "Linear",
    "Ragged",
    "paged_attention",
    "plan_attention",
    "rms_norm",
    "rope_table",
    "rotate",
    "silu_mul",
    "write_kv",
]
