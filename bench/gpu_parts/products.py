"""Products of a decode step: how near each comes to reading its weights at the memory's rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from forebay_kernels import ops
from forebay_kernels.quant_matrix import quantise
from gpu_parts.figure import Figure
from gpu_parts.models import config_of
from gpu_parts.problems import Problems
from gpu_parts.rates import COPY
from gpu_parts.run import Run
from gpu_parts.timing import seconds_of

Product = Callable[[Tensor], Tensor]


def measure(run: Run) -> Iterator[Figure]:
    """All matrices of several layers of Llama-3.1-8B, so that none is left in L2."""
    problems = Problems()
    for name, num_rows, least in (
        ("bf16", 1, 0.8),
        ("bf16", 16, None),
        ("int4", 1, 0.6),
        ("int4", 16, None),
        ("int8", 1, None),
        ("w8a8", 1, None),
    ):
        what = f"{name} weights of Llama-3.1-8B by {num_rows} row{'s' * (num_rows > 1)}"
        with problems.of(what):
            share, bytes_per_second = _share(run, name, num_rows)
            yield Figure(what, bytes_per_second / 1e9, "GB/s")
            yield Figure(f"{what}, of copy bandwidth", share, "share", least=least)
    problems.settle()


def _share(run: Run, name: str, num_rows: int) -> tuple[float, float]:
    shapes = _shapes(run)
    inputs = {k: torch.randn(num_rows, k, device=run.device, dtype=run.dtype) for _, k in shapes}
    calls, num_bytes = [], 0
    for _ in range(run.sizes.num_weights):
        for n, k in shapes:
            weight = torch.randn(n, k, device=run.device, dtype=run.dtype).mul_(0.02)
            product = _build(name, weight)
            num_bytes += product.num_bytes
            calls.append(_call(product, inputs[k]))
    seconds = seconds_of(calls, run.device, run.sizes.repeats) * len(calls)
    return num_bytes / seconds / (run.known[COPY] * 1e9), num_bytes / seconds


def _build(name: str, weight: Tensor) -> ops.Linear | ops.QuantLinear | ops.Int8Linear:
    if name == "bf16":
        return ops.Linear(weight)
    if name == "w8a8":
        return ops.Int8Linear(quantise(weight, 8, None, symmetric=True))
    bits, group_size = {"int4": (4, 32 if weight.shape[1] < 128 else 128), "int8": (8, None)}[name]
    return ops.QuantLinear(quantise(weight, bits, group_size, symmetric=bits == 8))


def _call(product: Product, x: Tensor) -> Callable[[], Tensor]:
    return lambda: product(x)


def _shapes(run: Run) -> list[tuple[int, int]]:
    """The four products of a layer, [outputs, inputs]."""
    config = config_of("Llama-3.1-8B", is_tiny=run.is_tiny)
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    return [
        ((heads + 2 * kv_heads) * head, hidden),
        (hidden, heads * head),
        (2 * inner, hidden),
        (hidden, inner),
    ]
