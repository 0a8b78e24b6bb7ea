"""Triton as on a GPU that is not there: what is launched is compiled, or found, and never runs.

So a whole model can be led through its kernels on a CPU, and what they are compiled for, and how
often, is what it would be on the GPU. What they would have computed is zeros.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from forebay_kernels import choice
from forebay_kernels.gpu.compiling.inventory import kernel_modules

_MADE_EMPTY = (
    (torch, "empty", torch.zeros),
    (torch, "empty_like", torch.zeros_like),
    (torch.Tensor, "new_empty", torch.Tensor.new_zeros),
)


class AbsentGpu:
    """Of a driver only what is asked before a launch."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> str:
        return f"absent-{self._target.arch}"

    def get_current_stream(self, device: str) -> int:
        return 0


@contextmanager
def kernels_unlaunched(capability: int = 90) -> Iterator[None]:
    """Have CPU tensors take Triton's kernels meanwhile, and none of these run."""
    run = JITFunction.run

    def compile_only(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        return run(kernel, *args, grid=grid, warmup=True, **kwargs)

    with ExitStack() as stack:
        asked = choice.uses_triton
        for module in list(sys.modules.values()):
            if getattr(module, "uses_triton", None) is asked:
                stack.enter_context(mock.patch.object(module, "uses_triton", lambda device: True))
        for owner, name, zeros in _MADE_EMPTY:
            stack.enter_context(mock.patch.object(owner, name, zeros))
        stack.enter_context(mock.patch.object(JITFunction, "run", compile_only))
        stack.enter_context(mock.patch.object(driver, "_active", AbsentGpu(capability)))
        yield


def forget_kernels() -> None:
    """Have every kernel looked up anew in Triton's cache, as a new process would."""
    for module in kernel_modules():
        for value in vars(module).values():
            if isinstance(value, JITFunction):
                value.device_caches.clear()
