"""The one door to the kernels: models import operations from here and never ask which runs.

All names stand for torch implementations so far; where a device gets a kernel of its own, the
choice is made in this file.
"""

from forebay_kernels.attention import (
    FULL_ATTENTION,
    AttentionPlan,
    AttentionRule,
    paged_attention,
    plan_attention,
)
from forebay_kernels.elementwise import (
    gelu_tanh_mul,
    rms_norm,
    rms_norm_heads,
    rope_table,
    rotate,
    silu_mul,
    softcap,
    write_kv,
)
from forebay_kernels.linear import Linear
from forebay_kernels.ragged import Ragged
from forebay_kernels.routing import choose_experts, group_by_expert

__all__ = [
    "FULL_ATTENTION",
    "AttentionPlan",
    "AttentionRule",
    "Linear",
    "Ragged",
    "choose_experts",
    "gelu_tanh_mul",
    "group_by_expert",
    "paged_attention",
    "plan_attention",
    "rms_norm",
    "rms_norm_heads",
    "rope_table",
    "rotate",
    "silu_mul",
    "softcap",
    "write_kv",
]
