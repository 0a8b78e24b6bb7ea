"""What launchers ask of Triton for a GPU of SM_90, written down instead of launched."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime import driver
from triton.runtime.jit import JITFunction, create_function_from_signature

from forebay_kernels import choice
from forebay_kernels.gpu.architecture import SM_90
from forebay_kernels.gpu.variant import Launch, Variant
from unlaunched_kernels import AbsentGpu


@contextmanager
def recorded_launches(patch: pytest.MonkeyPatch) -> Iterator[list[Variant]]:
    """Within, tensors of a CPU go to the launchers for GPUs, and what those make is zeros."""
    recorded: list[Variant] = []
    backend = make_backend(GPUTarget("cuda", SM_90.capability, 32))

    def record(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        recorded.append(_as_variant(kernel, backend, args, kwargs))

    with patch.context() as patched:
        patched.setattr(JITFunction, "run", record)
        patched.setattr(driver, "_active", AbsentGpu(SM_90.capability))
        patched.setattr(torch, "empty", torch.zeros)
        patched.setattr(torch, "empty_like", torch.zeros_like)
        patched.setattr(torch.Tensor, "new_empty", torch.Tensor.new_zeros)
        by_device = choice.uses_triton
        for module in list(sys.modules.values()):
            if getattr(module, "uses_triton", None) is by_device:
                patched.setattr(module, "uses_triton", lambda device: True)
        yield recorded


def _as_variant(
    kernel: Any, backend: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Variant:
    """The compilation that Triton would make or find for a call, by its own rules."""
    kwargs = {"debug": False, **kwargs}
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, options = bind(*args, **kwargs)
    options, signature, constants, attributes = kernel._pack_args(
        backend, kwargs, bound, specialization, options
    )
    names = kernel.arg_names
    return Variant(
        kernel.__name__,
        kernel,
        {name: kind for name, kind in signature.items() if kind != "constexpr"},
        {names[path[0]]: value for path, value in constants.items()},
        Launch({}, options.num_warps, options.num_stages),
        aligned=frozenset(names[path[0]] for path, told in attributes.items() if told),
    )
