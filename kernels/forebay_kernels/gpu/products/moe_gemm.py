"""A mixture's products: each block of places by the weight of its expert, in one launch.

Where the experts' weights lie is a table on the device, so that no weight is moved and the host
knows of no choice: the grid has as many blocks as any choice could need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.architecture import architecture_of
from forebay_kernels.gpu.launch_tables.moe_gemm import TABLE
from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.products.dense_product import dense_product
from forebay_kernels.gpu.products.gemm_quant import chunk_constants
from forebay_kernels.gpu.products.moe_align import moe_align
from forebay_kernels.gpu.products.quant_product import quant_product
from forebay_kernels.gpu.products.split_sum import INVARIANT_ROWS, rows_to_launch_for, split_sum
from forebay_kernels.gpu.variant import Launch, Variant, divisible
from forebay_kernels.quant_matrix import QuantMatrix

_UNIT = 16
"""Bytes in which the table counts, so that a kernel knows what it adds to be aligned."""
_DENSE_CHUNK_BYTES = {16: 256, 64: 128}
"""Of a dense weight's row that a program takes at a time, by BLOCK_M."""


@dataclass(frozen=True)
class ExpertWeights:
    """The weights of all experts for one of their products, where they are.

    first: the first expert's weight [N, K], or its QuantMatrix; all are alike. offsets: [3, E]
    int64, from the first expert's words (or weight), scales and zeros to each expert's, in units
    of 16 bytes.
    """

    first: Tensor | QuantMatrix
    offsets: Tensor

    @property
    def num_outputs(self) -> int:
        """N."""
        return self.first.num_outputs if isinstance(self.first, QuantMatrix) else len(self.first)

    @property
    def num_experts(self) -> int:
        """E."""
        return self.offsets.shape[1]

    @staticmethod
    def of(weights: Sequence[Tensor | QuantMatrix]) -> ExpertWeights:
        """Note where they lie; they stay referenced by whoever has them.

        Raises: ValueError if they are not alike.
        """
        parts = [_parts(weight) for weight in weights]
        first = parts[0]
        if any(_facts(each) != _facts(first) for each in parts[1:]):
            raise ValueError("the experts of a mixture differ in shape, dtype or packing")
        starts = torch.tensor([[part.data_ptr() for part in each] for each in parts])
        offsets = (starts - starts[0]).T
        if (offsets % _UNIT).any():
            raise ValueError(f"an expert's weights do not begin at a multiple of {_UNIT} bytes")
        return ExpertWeights(weights[0], (offsets // _UNIT).to(first[0].device).contiguous())


def _parts(weight: Tensor | QuantMatrix) -> tuple[Tensor, Tensor, Tensor]:
    if isinstance(weight, Tensor):
        return weight, weight, weight
    if weight.input_order is not None:
        raise ValueError("an expert's weight has its inputs in an order of its own")
    return weight.words, weight.scales, weight.words if weight.zeros is None else weight.zeros


def _facts(parts: Sequence[Tensor]) -> list[tuple[torch.Size, tuple[int, ...], torch.dtype]]:
    return [(part.shape, part.stride(), part.dtype) for part in parts]


@triton.jit(do_not_specialize=["num_tokens", "num_chosen", "num_experts"])
def moe_gemm_kernel(
    # x [T, K], or of each place [T * C, K] if IS_DOWN, rows stride_x apart; out [T * C, N], a row
    # a place, or [C, T, N] float32 if IS_DOWN
    x,
    out,
    # the first expert's, and offsets [3, E] int64 to the others'
    weight,
    scales,
    zeros,
    offsets,
    # places_by_block [B, BLOCK_M], expert_by_block [B] int32; place_weights [T * C] float32, that
    # results are multiplied by if IS_DOWN
    places_by_block,
    expert_by_block,
    place_weights,
    num_tokens,
    num_chosen,
    num_experts,
    num_outputs,
    num_inputs,
    stride_x,
    IS_DOWN: tl.constexpr,
    BITS: tl.constexpr,
    IS_GROUPED: tl.constexpr,
    HAS_ZEROS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    CHUNKS: tl.constexpr,
    UNIT: tl.constexpr,
):
    block = tl.program_id(0)
    expert = tl.load(expert_by_block + block)
    if expert < 0:
        return
    places = tl.load(places_by_block + block * BLOCK_M + tl.arange(0, BLOCK_M))
    has_place = places >= 0
    outputs = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    tokens = places // num_chosen
    if IS_DOWN:
        x_rows = x + places.to(tl.int64) * stride_x
        out_rows = (places % num_chosen).to(tl.int64) * num_tokens + tokens
    else:
        x_rows = x + tokens.to(tl.int64) * stride_x
        out_rows = places.to(tl.int64)
    offsets += expert
    weight_size: tl.constexpr = weight.dtype.element_ty.primitive_bitwidth // 8
    weight += tl.load(offsets) * (UNIT // weight_size)
    if BITS > 8:
        total = dense_product(
            x_rows,
            has_place,
            weight,
            outputs,
            num_outputs,
            num_inputs,
            0,
            tl.cdiv(num_inputs, BLOCK_K),
            BLOCK_M,
            BLOCK_N,
            BLOCK_K,
        )
    else:
        scale_size: tl.constexpr = scales.dtype.element_ty.primitive_bitwidth // 8
        total = quant_product(
            x_rows,
            has_place,
            weight,
            scales + tl.load(offsets + num_experts) * (UNIT // scale_size),
            zeros + tl.load(offsets + 2 * num_experts) * UNIT,
            outputs,
            num_outputs,
            num_inputs,
            0,
            tl.cdiv(num_inputs, BLOCK_K),
            BITS,
            IS_GROUPED,
            HAS_ZEROS,
            BLOCK_M,
            BLOCK_N,
            BLOCK_K,
            CHUNKS,
        )
    if IS_DOWN:
        total *= tl.load(place_weights + places, mask=has_place, other=0.0)[None, :]
    mask = (outputs < num_outputs)[:, None] & has_place[None, :]
    at = out + out_rows[None, :] * num_outputs + outputs[:, None]
    tl.store(at, total.to(out.dtype.element_ty), mask=mask)


@dataclass(frozen=True)
class Routing:
    """Which expert each of T tokens has chosen, and how much of each it takes.

    experts: [T, C] int64. weights: [T, C] float32. places, expert_by_block: by moe_align.
    """

    experts: Tensor
    weights: Tensor
    places: Tensor
    expert_by_block: Tensor

    @staticmethod
    def of(experts: Tensor, weights: Tensor, num_experts: int, launch: Launch) -> Routing:
        """Lay the places out for a launch."""
        aligned = moe_align(experts, num_experts, launch.tiles["BLOCK_M"])
        return Routing(experts, weights.float().contiguous(), *aligned)


def choose_launch(x: Tensor, experts: Tensor, weights: ExpertWeights) -> Launch:
    """The launch for both products of a mixture: they share their blocks of places."""
    num_rows = triton.cdiv(experts.numel(), weights.num_experts)
    return TABLE.choose(
        architecture_of(x.device),
        num_rows=rows_to_launch_for(num_rows),
        bits=_bits(weights.first, x.dtype.itemsize),
    )


def _bits(weight: Tensor | QuantMatrix, itemsize: int) -> int:
    return weight.bits if isinstance(weight, QuantMatrix) else 8 * itemsize


def moe_gemm(
    x: Tensor, weights: ExpertWeights, routing: Routing, launch: Launch, *, is_down: bool
) -> Tensor:
    """The product of each place with the weight of its expert.

    Shapes: x [T, K], out [T * C, N]; if is_down x [T * C, K], out [C, T, N] float32, what each
    token takes of each of its experts: then all that is left is to add it up.
    """
    num_tokens, num_chosen = routing.experts.shape
    num_outputs = weights.num_outputs
    words, scales, zeros = _parts(weights.first)
    if is_down:
        out = x.new_empty(num_chosen, num_tokens, num_outputs, dtype=torch.float32)
    else:
        out = x.new_empty(num_tokens * num_chosen, num_outputs)
    grid = (len(routing.expert_by_block), triton.cdiv(num_outputs, launch.tiles["BLOCK_N"]))
    moe_gemm_kernel[grid](
        x,
        out,
        words,
        scales,
        zeros,
        weights.offsets,
        routing.places,
        routing.expert_by_block,
        routing.weights,
        num_tokens,
        num_chosen,
        weights.num_experts,
        num_outputs,
        x.shape[1],
        x.stride(0),
        IS_DOWN=is_down,
        **_constants(launch, weights.first, _bits(weights.first, x.dtype.itemsize)),
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )
    return out


def experts_product(
    x: Tensor,
    gate_up: ExpertWeights,
    down: ExpertWeights,
    routing: tuple[Tensor, Tensor],
    gate: Callable[[Tensor], Tensor],
) -> Tensor:
    """The gated MLPs that each token has chosen, added up by its weights.

    routing: experts [T, C] int64, and weights [T, C]. Shapes: x, out [T, h].
    """
    experts, place_weights = routing
    x = x.contiguous()
    out = x.new_empty(x.shape[0], down.num_outputs)
    if not len(x):
        return out
    launch = choose_launch(x, experts, gate_up)
    laid_out = Routing.of(experts, place_weights, gate_up.num_experts, launch)
    inner = gate(moe_gemm(x, gate_up, laid_out, launch, is_down=False))
    split_sum(moe_gemm(inner, down, laid_out, launch, is_down=True), out, None, None)
    return out


def _constants(launch: Launch, weight: Tensor | QuantMatrix, bits: int) -> dict[str, int | bool]:
    if isinstance(weight, Tensor):
        return _all_constants(launch, bits, None, False)
    return _all_constants(launch, weight.bits, weight.group_size, weight.zeros is not None)


def _all_constants(
    launch: Launch, bits: int, group_size: int | None, has_zeros: bool
) -> dict[str, int | bool]:
    constants = {**launch.tiles, "BITS": bits, "HAS_ZEROS": has_zeros, "UNIT": _UNIT}
    if bits > 8:
        block_k = _DENSE_CHUNK_BYTES[launch.tiles["BLOCK_M"]] * 8 // bits
        return constants | {"IS_GROUPED": False, "BLOCK_K": block_k, "CHUNKS": 1}
    return constants | chunk_constants(launch, bits, group_size)


def variants(shape: ModelShape) -> Iterator[Variant]:
    """For each launch that a mixture comes to, one into its experts and one out of them."""
    if shape.mixture is None or shape.weights.format == "w8a8":
        return
    weights, mixture = shape.weights, shape.mixture
    bits = {"dense": 8 * shape.itemsize, "int8": 8, "int4": 4}[weights.format]
    num_rows = (INVARIANT_ROWS,) if shape.is_batch_invariant else (1, INVARIANT_ROWS)
    for rows in num_rows:
        launch = TABLE.choose(shape.architecture, num_rows=rows, bits=bits)
        constants = _all_constants(
            launch, bits, weights.group_size or None, weights.has_zero_points
        )
        inner, hidden = mixture.intermediate_size, shape.hidden_size
        for is_down, sizes in ((False, (2 * inner, hidden)), (True, (hidden, inner))):
            yield _variant(shape, launch, constants | {"IS_DOWN": is_down}, *sizes)


def _variant(
    shape: ModelShape,
    launch: Launch,
    constants: Mapping[str, int | bool],
    num_outputs: int,
    num_inputs: int,
) -> Variant:
    is_down, bits = bool(constants["IS_DOWN"]), int(constants["BITS"])
    tiles = f"{constants['BLOCK_M']}x{constants['BLOCK_N']}"
    grouped = f"-g{constants['BLOCK_K']}" if constants["IS_GROUPED"] else ""
    zeros = "-zeros" if constants["HAS_ZEROS"] else ""
    pointer = f"*{shape.dtype}"
    is_dense = bits > 8
    scales = "fp32" if is_dense else shape.weights.scale_dtype or shape.dtype
    return Variant(
        name=f"moe_gemm/{'down' if is_down else 'up'}-{tiles}-{shape.dtype}-b{bits}{grouped}{zeros}"
        f"{'' if num_outputs % 16 + num_inputs % 16 == 0 else f'-{num_outputs}x{num_inputs}'}",
        kernel=moe_gemm_kernel,
        signature={
            "x": pointer,
            "out": "*fp32" if is_down else pointer,
            "weight": pointer if is_dense else "*u8",
            "scales": pointer if is_dense else f"*{scales}",
            "zeros": pointer if is_dense else "*u8",
            "offsets": "*i64",
            **dict.fromkeys(("places_by_block", "expert_by_block"), "*i32"),
            "place_weights": "*fp32",
            **dict.fromkeys(_NUMBERS, "i32"),
        },
        constants=constants,
        launch=launch,
        aligned=divisible(
            **dict.fromkeys(_TENSORS, 0),
            num_outputs=num_outputs,
            num_inputs=num_inputs,
            stride_x=num_inputs,
        ),
        uses_tensor_cores=shape.dtype != "fp32",
        sized_for=f"one token, 2 experts of {num_inputs} by {num_outputs}",
        bytes_moved=2 * num_outputs * num_inputs * bits // 8,
        flops=4 * num_outputs * num_inputs,
    )


_NUMBERS = ("num_tokens", "num_chosen", "num_experts", "num_outputs", "num_inputs", "stride_x")
_TENSORS = ("x", "out", "weight", "scales", "zeros", "offsets") + (
    "places_by_block",
    "expert_by_block",
    "place_weights",
)
