"""Paged attention on a GPU: which kernels a batch takes."""

from __future__ import annotations

import torch
from torch import Tensor

from forebay_kernels.attention_rule import FULL_ATTENTION, AttentionRule
from forebay_kernels.gpu.attention.decode import attend_decodes
from forebay_kernels.gpu.attention.plan import DeviceAttentionPlan
from forebay_kernels.gpu.attention.prefill import attend_prefills
from forebay_kernels.kv_layer import KvLayer
from forebay_kernels.portable.batch_invariant import is_on


def paged_attention(
    q: Tensor,
    layer: KvLayer,
    plan: DeviceAttentionPlan,
    rule: AttentionRule = FULL_ATTENTION,
) -> Tensor:
    """Attend each query token to its sequence's cached keys and values.

    Rows that are no sequence's, or one's of length 0, give zeros. Reads nothing from the device, so
    that it may be captured in a graph.
    Shapes: q, out [T, H, D].
    Raises: ValueError for tensors that the kernels are not made for.
    """
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if is_on():
        attend_prefills(q, layer, plan, rule, out, is_batch_invariant=True)
        return out
    if plan.has_decodes:
        attend_decodes(q, layer, plan, rule, out)
    if not plan.is_decode_only:
        attend_prefills(q, layer, plan, rule, out)
    return out
