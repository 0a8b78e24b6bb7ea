"""The one door to the kernels: models import operations from here and never ask which runs.

All names stand for torch implementations so far; where a device gets a kernel of its own, the
choice is made in this file.
"""

from torch import Tensor

from forebay_kernels.attention_rule import FULL_ATTENTION, AttentionRule
from forebay_kernels.portable import attention, elementwise
from forebay_kernels.portable.attention import AttentionPlan
from forebay_kernels.portable.batch_invariant import batch_invariant, by_rows, is_on
from forebay_kernels.portable.batch_invariant import paged_attention as _attend_one_by_one
from forebay_kernels.portable.elementwise import rope_table, write_kv
from forebay_kernels.portable.linear import Linear
from forebay_kernels.portable.routing import choose_experts, group_by_expert
from forebay_kernels.ragged import Ragged

gelu_tanh_mul = by_rows(elementwise.gelu_tanh_mul)
rms_norm = by_rows(elementwise.rms_norm)
rms_norm_heads = by_rows(elementwise.rms_norm_heads)
rotate = by_rows(elementwise.rotate, num_split=3)
sigmoid = by_rows(elementwise.sigmoid)
silu_mul = by_rows(elementwise.silu_mul)
softcap = by_rows(elementwise.softcap)


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    plan: AttentionPlan,
    rule: AttentionRule = FULL_ATTENTION,
) -> Tensor:
    """Attend each query token to its sequence's cached keys and values; see attention."""
    attend = _attend_one_by_one if is_on() else attention.paged_attention
    return attend(q, k_cache, v_cache, plan, rule)


__all__ = [
    "FULL_ATTENTION",
    "AttentionPlan",
    "AttentionRule",
    "Linear",
    "Ragged",
    "batch_invariant",
    "choose_experts",
    "gelu_tanh_mul",
    "group_by_expert",
    "paged_attention",
    "rms_norm",
    "rms_norm_heads",
    "rope_table",
    "rotate",
    "sigmoid",
    "silu_mul",
    "softcap",
    "write_kv",
]
