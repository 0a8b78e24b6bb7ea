"""The one door to the kernels: models import operations from here and never ask which runs.

What has a kernel of its own for some devices is chosen by the tensors at hand; the rest is torch.
Where a program is recorded, operations are its instructions.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from forebay_kernels.attention_rule import FULL_ATTENTION, AttentionRule
from forebay_kernels.choice import by_device, recordable, uses_triton
from forebay_kernels.cpu.recorded import Recorded
from forebay_kernels.experts import Experts, group_experts
from forebay_kernels.gpu.attention.plan import DeviceAttentionPlan
from forebay_kernels.int8_linear import Int8Linear
from forebay_kernels.kv_layer import KV_KINDS, KvLayer, new_kv_layers
from forebay_kernels.linear import Linear
from forebay_kernels.portable import attention, elementwise, kv_write, residual, routing
from forebay_kernels.portable.attention import AttentionPlan as PortableAttentionPlan
from forebay_kernels.portable.batch_invariant import batch_invariant, by_rows, is_on
from forebay_kernels.portable.batch_invariant import paged_attention as _attend_one_by_one
from forebay_kernels.portable.elementwise import rope_table
from forebay_kernels.portable.routing import group_by_expert
from forebay_kernels.quant_linear import QuantLinear
from forebay_kernels.ragged import Ragged
from forebay_kernels.rotation import HeadNorms, Rotation

add = recordable(elementwise.add)
add_rms_norm = by_device(residual.add_rms_norm, "rms_norm")
choose_experts = recordable(routing.choose_experts)
embedding = by_device(elementwise.embedding, "embedding")
gelu_tanh_mul = by_device(by_rows(elementwise.gelu_tanh_mul), "gate_mul")
join_heads = recordable(elementwise.join_heads)
rms_norm = by_device(by_rows(elementwise.rms_norm), "rms_norm")
rotate_and_write = by_device(kv_write.rotate_and_write, "rotate_and_write")
scale = recordable(elementwise.scale)
sigmoid = recordable(by_rows(elementwise.sigmoid))
silu_mul = by_device(by_rows(elementwise.silu_mul), "gate_mul")
softcap = by_device(by_rows(elementwise.softcap), "softcap")
widen = recordable(elementwise.widen)
write_kv = by_device(kv_write.write_kv, "kv_write")


def adds_in_norm(x: Tensor) -> bool:
    """Is what a block gives cheapest added where the next norm reads it, by add_rms_norm?

    Else where it is computed, by Linear.add_to. x: the residual stream.
    """
    return not isinstance(x, Recorded) and uses_triton(x.device)


AttentionPlan = PortableAttentionPlan | DeviceAttentionPlan
"""What plan_attention gives: its slots are as in Ragged; all else is paged_attention's."""


@recordable
def multiply_row(x: Tensor, products: Sequence[Callable[[Tensor], Tensor]]) -> Tensor:
    """Products of the same inputs, their outputs side by side. Shapes: x [T, I]; out [T, N]."""
    return torch.cat([product(x) for product in products], -1)


def plan_attention(ragged: Ragged, block_size: int, dtype: torch.dtype) -> AttentionPlan:
    """One step's attention, for all layers. block_size: of the cache; dtype: the queries'."""
    if uses_triton(ragged.block_tables.device):
        return DeviceAttentionPlan(ragged)
    return PortableAttentionPlan(ragged, block_size, dtype)


@recordable
def paged_attention(
    q: Tensor, layer: KvLayer, plan: AttentionPlan, rule: AttentionRule = FULL_ATTENTION
) -> Tensor:
    """Attend each query token to its sequence's cached keys and values.

    Rows that are no sequence's give zeros. Shapes: q, out [T, H, D].
    """
    if isinstance(plan, DeviceAttentionPlan):
        from forebay_kernels.gpu.attention.paged_attention import (
            paged_attention as attend_by_triton,
        )

        return attend_by_triton(q, layer, plan, rule)
    attend = _attend_one_by_one if is_on() else attention.paged_attention
    return attend(q, layer, plan, rule)


__all__ = [
    "FULL_ATTENTION",
    "KV_KINDS",
    "AttentionPlan",
    "AttentionRule",
    "Experts",
    "HeadNorms",
    "KvLayer",
    "Int8Linear",
    "Linear",
    "QuantLinear",
    "Ragged",
    "Rotation",
    "add",
    "add_rms_norm",
    "adds_in_norm",
    "batch_invariant",
    "choose_experts",
    "embedding",
    "gelu_tanh_mul",
    "group_by_expert",
    "group_experts",
    "join_heads",
    "multiply_row",
    "new_kv_layers",
    "paged_attention",
    "plan_attention",
    "rms_norm",
    "rope_table",
    "rotate_and_write",
    "scale",
    "sigmoid",
    "silu_mul",
    "softcap",
    "widen",
    "write_kv",
]
