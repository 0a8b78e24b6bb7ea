"""A kernel that can be compiled into each of the things that must not ship."""

import triton
import triton.language as tl

from forebay_kernels.gpu.variant import Launch, Variant


@triton.jit
def product(
    a_ptr,  # [M, num_steps * K]
    b_ptr,  # [num_steps * K, N]
    out_ptr,  # [M, N]
    num_steps,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    USES_DOT: tl.constexpr,
):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for step in range(num_steps):
        a = tl.load(a_ptr + rows[:, None] * (num_steps * K) + step * K + inner)
        b = tl.load(b_ptr + (step * K + inner[:, None]) * N + columns)
        if USES_DOT:
            total = tl.dot(a, b, total)
        else:
            total += tl.sum(a[:, :, None].to(tl.float32) * b[None].to(tl.float32), 1)
    tl.store(out_ptr + rows[:, None] * N + columns, total)


def product_variant(launch: Launch, *, uses_dot: bool = True) -> Variant:
    """The product with a launch's tiles M, N and K; on tensor cores, as it says either way."""
    return Variant(
        "product",
        product,
        {"a_ptr": "*bf16", "b_ptr": "*bf16", "out_ptr": "*fp32", "num_steps": "i32"},
        {**launch.tiles, "USES_DOT": uses_dot},
        launch,
        aligned=frozenset({"a_ptr", "b_ptr", "out_ptr"}),
        uses_tensor_cores=True,
    )
