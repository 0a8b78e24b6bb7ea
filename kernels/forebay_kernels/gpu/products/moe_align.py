"""Lays a mixture's places out by expert, on the device and in shapes that depend on no choice.

A place is one of the num_chosen of a token, token * num_chosen + which. Each expert gets whole
blocks of BLOCK_M places, in ascending order; a block that is not needed has no expert.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.launch_tables.moe_gemm import BLOCK_SIZES
from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.variant import Launch, Variant, divisible

NONE = -1
"""What stands for no place and no expert."""
LAUNCH = Launch({"TILE": 1024}, num_warps=4)


@triton.jit(do_not_specialize=["num_places"])
def moe_count_kernel(
    experts,  # [T, C] int64, as num_places of them
    counts,  # [E] int32
    num_places,
    TILE: tl.constexpr,
):
    expert = tl.program_id(0)
    places = tl.arange(0, TILE)
    found = tl.zeros((TILE,), tl.int32)
    for start in range(0, num_places, TILE):
        chosen = tl.load(experts + start + places, mask=places < num_places - start, other=-1)
        found += (chosen == expert).to(tl.int32)
    tl.store(counts + expert, tl.sum(found))


@triton.jit(do_not_specialize=["num_places", "num_experts"])
def moe_align_kernel(
    experts,  # [T, C] int64, as num_places of them
    counts,  # [E] int32
    places_by_block,  # [B, BLOCK_M] int32
    expert_by_block,  # [B] int32
    num_places,
    num_experts,
    EXPERTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    TILE: tl.constexpr,
):
    expert = tl.program_id(0)
    others = tl.arange(0, EXPERTS)
    num_blocks = (tl.load(counts + others, mask=others < num_experts, other=0) + BLOCK_M - 1) // (
        BLOCK_M
    )
    first = tl.sum(tl.where(others < expert, num_blocks, 0))
    own = tl.sum(tl.where(others == expert, num_blocks, 0))
    for block in range(first, first + own):
        tl.store(expert_by_block + block, expert)
    places = tl.arange(0, TILE)
    filled = first * BLOCK_M
    for start in range(0, num_places, TILE):
        chosen = tl.load(experts + start + places, mask=places < num_places - start, other=-1)
        is_own = (chosen == expert).to(tl.int32)
        spots = filled + tl.cumsum(is_own, 0) - 1
        tl.store(places_by_block + spots, start + places, mask=is_own == 1)
        filled += tl.sum(is_own)


def most_blocks(num_places: int, num_experts: int, block_m: int) -> int:
    """Blocks that any choice of experts comes to at most: each may have one that is not full."""
    return num_places // block_m + min(num_experts, num_places)


def moe_align(experts: Tensor, num_experts: int, block_m: int) -> tuple[Tensor, Tensor]:
    """The places of each block [B, block_m] int32, NONE where it has fewer, and its expert [B].

    Shapes: experts [T, C] int64, every one of them within num_experts.
    """
    num_places = experts.numel()
    num_blocks = most_blocks(num_places, num_experts, block_m)
    counts = experts.new_empty(num_experts, dtype=torch.int32)
    places = experts.new_full((num_blocks, block_m), NONE, dtype=torch.int32)
    expert_by_block = experts.new_full((num_blocks,), NONE, dtype=torch.int32)
    experts = experts.contiguous()
    tile = LAUNCH.tiles["TILE"]
    moe_count_kernel[(num_experts,)](
        experts,
        counts,
        num_places,
        TILE=tile,
        num_warps=LAUNCH.num_warps,
        num_stages=LAUNCH.num_stages,
    )
    moe_align_kernel[(num_experts,)](
        experts,
        counts,
        places,
        expert_by_block,
        num_places,
        num_experts,
        EXPERTS=triton.next_power_of_2(num_experts),
        BLOCK_M=block_m,
        TILE=tile,
        num_warps=LAUNCH.num_warps,
        num_stages=LAUNCH.num_stages,
    )
    return places, expert_by_block


def variants(shape: ModelShape) -> Iterator[Variant]:
    """Two for a mixture, and one that counts."""
    if shape.mixture is None:
        return
    num_experts = shape.mixture.num_experts
    count = {"experts": "*i64", "counts": "*i32", "num_places": "i32"}
    yield Variant(
        "moe_count",
        moe_count_kernel,
        count,
        dict(LAUNCH.tiles),
        LAUNCH,
        aligned=divisible(experts=0, counts=0),
    )
    for block_m in BLOCK_SIZES:
        yield Variant(
            f"moe_align/e{num_experts}-m{block_m}",
            moe_align_kernel,
            count | {"places_by_block": "*i32", "expert_by_block": "*i32", "num_experts": "i32"},
            {**LAUNCH.tiles, "EXPERTS": triton.next_power_of_2(num_experts), "BLOCK_M": block_m},
            LAUNCH,
            aligned=divisible(experts=0, counts=0, places_by_block=0, expert_by_block=0),
        )
