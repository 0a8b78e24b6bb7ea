"""What the kernels for quantised weights share: a tile of a product, dequantised in registers.

Tiles lie with outputs as rows, [BLOCK_N, BLOCK_M], so that the weights are the tensor cores' first
operand, which may come from registers; that way codes alone pass through shared memory. Codes
become numbers of 16 bits by their place in a float's fraction: a code c beneath the exponent of a
power of two is that power plus c, and taking the power plus the zero away again is exact. Scales
are applied to sums, a group at a time, in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from forebay_kernels.choice import is_interpreted
from forebay_kernels.quant_matrix import WORD_BYTES

INTERPRETED = tl.constexpr(is_interpreted())
_WORD = tl.constexpr(WORD_BYTES)

_SPREAD = """
{
.reg .b32 first, second;
prmt.b32 first, $4, 0, 0x4140;
prmt.b32 second, $4, 0, 0x4342;
lop3.b32 $0, first, 0x000f000f, MAGIC, 0xea;
lop3.b32 $1, second, 0x000f000f, MAGIC, 0xea;
shr.u32 first, first, 4;
shr.u32 second, second, 4;
lop3.b32 $2, first, 0x000f000f, MAGIC, 0xea;
lop3.b32 $3, second, 0x000f000f, MAGIC, 0xea;
}
"""
"""Four bytes to two floats for each low half, then two for each high one; 0xea is a & b | c."""
SPREAD_BF16 = tl.constexpr(_SPREAD.replace("MAGIC", "0x43004300"))
SPREAD_FP16 = tl.constexpr(_SPREAD.replace("MAGIC", "0x64006400"))


@triton.jit
def _float16_of(codes, DTYPE: tl.constexpr):
    """Codes below 128 (bf16) or 1024 (fp16), plus 128 or 1024."""
    if DTYPE == tl.bfloat16:
        return (codes.to(tl.int16) | 0x4300).to(tl.bfloat16, bitcast=True)
    else:
        return (codes.to(tl.int16) | 0x6400).to(tl.float16, bitcast=True)


@triton.jit
def _spread(codes, DTYPE: tl.constexpr):
    """The low and the high halves of bytes, each plus the power of two that _float16_of adds."""
    if INTERPRETED:
        return _float16_of(codes & 15, DTYPE), _float16_of(codes >> 4, DTYPE)
    elif DTYPE == tl.bfloat16:
        return tl.inline_asm_elementwise(
            SPREAD_BF16, "=r,=r,=r,=r,r", [codes], (tl.bfloat16, tl.bfloat16), True, 4
        )
    else:
        return tl.inline_asm_elementwise(
            SPREAD_FP16, "=r,=r,=r,=r,r", [codes], (tl.float16, tl.float16), True, 4
        )


@triton.jit
def centred_int4(codes, zero, DTYPE: tl.constexpr):
    """Bytes [BLOCK_N, B] less their rows' zeros [BLOCK_N, 1]: of the low halves, of the high."""
    if DTYPE == tl.float32:
        zero = zero.to(tl.float32)
        return (codes & 15).to(tl.float32) - zero, (codes >> 4).to(tl.float32) - zero
    else:
        low, high = _spread(codes, DTYPE)
        zero = _float16_of(zero, DTYPE)
        return low - zero, high - zero


@triton.jit
def centred_int8(codes, zero, DTYPE: tl.constexpr):
    """Bytes [BLOCK_N, B] less their rows' zeros [BLOCK_N, 1]."""
    if DTYPE == tl.float16:
        return _float16_of(codes, DTYPE) - _float16_of(zero, DTYPE)
    else:
        # 2 ** 23 in float32, whose last bit is one; the difference has eight bits, as bf16 has.
        wide = (codes.to(tl.int32) | 0x4B000000).to(tl.float32, bitcast=True)
        return (wide - (zero.to(tl.int32) | 0x4B000000).to(tl.float32, bitcast=True)).to(DTYPE)


@triton.jit
def quant_product(
    # x: [BLOCK_M] pointers to rows of inputs; only those with has_row are read
    x_rows,
    has_row,
    # words [K * BITS / 128, N, 16] uint8; scales, zeros [G, N], as in QuantMatrix
    words,
    scales,
    zeros,
    # outputs: [BLOCK_N] of the N columns; sums over chunks first … last - 1 of BLOCK_K inputs
    outputs,
    num_outputs,
    num_inputs,
    first,
    last,
    BITS: tl.constexpr,
    IS_GROUPED: tl.constexpr,
    HAS_ZEROS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """The sums [BLOCK_N, BLOCK_M] float32 of weight times input.

    IS_GROUPED: BLOCK_K inputs share a scale; else all do. CHUNKS: so many are read at a time.
    """
    dtype: tl.constexpr = x_rows.dtype.element_ty
    num_bytes: tl.constexpr = BLOCK_K * BITS // 8
    inputs_a_word: tl.constexpr = _WORD * 8 // BITS
    byte = tl.arange(0, num_bytes)
    inputs = byte // _WORD * inputs_a_word + byte % _WORD
    has_output = outputs < num_outputs
    chunk_bytes = (num_bytes // _WORD * _WORD) * num_outputs.to(tl.int64)
    word_offsets = (byte // _WORD)[None, :] * num_outputs + outputs[:, None]
    word_at = words + first * chunk_bytes + word_offsets.to(tl.int64) * _WORD
    word_at += (byte % _WORD)[None, :]
    x_at = x_rows[None, :] + (first * BLOCK_K + inputs)[:, None]
    scale_offset = outputs.to(tl.int64)
    if IS_GROUPED:
        scale_offset += first * num_outputs.to(tl.int64)
    num_left = tl.minimum(num_inputs, last * BLOCK_K) - first * BLOCK_K
    total = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    if not IS_GROUPED:
        zero = _zero(zeros + scale_offset, has_output, HAS_ZEROS, BITS, BLOCK_N)
    for _ in range(first, last, CHUNKS):
        for chunk in tl.static_range(CHUNKS):
            # An input past the last counts as zero, and its codes are not read. Compared by word,
            # as one that could end within a word would be read a number at a time.
            is_input = byte // _WORD * inputs_a_word + chunk * BLOCK_K < num_left
            if IS_GROUPED:
                is_scale = outputs < tl.where(chunk * BLOCK_K < num_left, num_outputs, 0)
                at = scale_offset + chunk * num_outputs
                zero = _zero(zeros + at, is_scale, HAS_ZEROS, BITS, BLOCK_N)
                scale = tl.load(scales + at, mask=is_scale, other=0.0).to(tl.float32)
                sums = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
            else:
                sums = total
            codes = tl.load(
                word_at + chunk * chunk_bytes, mask=has_output[:, None] & is_input[None, :], other=0
            )
            x_mask = is_input[:, None] & has_row[None, :]
            x = tl.load(x_at + chunk * BLOCK_K, mask=x_mask, other=0.0)
            if BITS == 4:
                low, high = centred_int4(codes, zero[:, None], dtype)
                sums = tl.dot(low, x, sums, input_precision="ieee")
                x = tl.load(x_at + (chunk * BLOCK_K + _WORD), mask=x_mask, other=0.0)
                sums = tl.dot(high, x, sums, input_precision="ieee")
            else:
                weight = centred_int8(codes, zero[:, None], dtype)
                sums = tl.dot(weight, x, sums, input_precision="ieee")
            if IS_GROUPED:
                total += sums * scale[:, None]
            else:
                total = sums
        word_at += CHUNKS * chunk_bytes
        x_at += CHUNKS * BLOCK_K
        scale_offset += CHUNKS * num_outputs
        num_left -= CHUNKS * BLOCK_K
    if not IS_GROUPED:
        scale = tl.load(scales + outputs, mask=has_output, other=0.0).to(tl.float32)
        total *= scale[:, None]
    return total


@triton.jit
def _zero(at, mask, HAS_ZEROS: tl.constexpr, BITS: tl.constexpr, BLOCK_N: tl.constexpr):
    """The zeros of BLOCK_N outputs: uint8."""
    if HAS_ZEROS:
        return tl.load(at, mask=mask, other=0)
    else:
        return tl.full((BLOCK_N,), 1 << (BITS - 1), tl.uint8)
