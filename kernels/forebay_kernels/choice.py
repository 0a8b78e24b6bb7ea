"""Which form of an operation runs: by the device of what it takes.

What stands for a tensor while a program is recorded goes to `cpu.recording`, whatever the device.

Triton's kernels run on CUDA devices, and under Triton's interpreter on a CPU, where
FOREBAY_KERNELS=triton asks for it: slow, and exact enough to test with.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from typing import ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from forebay_kernels.cpu.recorded import CannotRecord, Recorded

Inputs = ParamSpec("Inputs")
Result = TypeVar("Result")


@cache
def uses_triton(device: torch.device) -> bool:
    """Whether a device runs Triton's kernels.

    Raises: ValueError if a CPU is asked to, and Triton was not told to interpret.
    """
    if device.type == "cuda":
        return True
    if os.environ.get("FOREBAY_KERNELS", "") != "triton":
        return False
    if not is_interpreted():
        raise ValueError(
            "FOREBAY_KERNELS=triton on a CPU needs TRITON_INTERPRET=1 from the process's start on"
        )
    return True


def is_interpreted() -> bool:
    """Whether Triton interprets its kernels; it reads that when a kernel is defined."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def recordable(operation: Callable[Inputs, Result]) -> Callable[Inputs, Result]:
    """An operation that becomes an instruction where its first argument is recorded.

    The instruction is cpu.recording's function of the same name; an operation without one raises
    CannotRecord there.
    """
    name = operation.__name__

    @wraps(operation)
    def run(*args: Inputs.args, **kwargs: Inputs.kwargs) -> Result:
        if isinstance(args[0], Recorded):
            return cast(Result, _instruction(name)(*args, **kwargs))
        return operation(*args, **kwargs)

    return run


def by_device(portable: Callable[Inputs, Result], module: str) -> Callable[Inputs, Result]:
    """An operation that is gpu.MODULE's, by the same name, where its first tensor's device has it.

    The module is imported when it is first needed: a host without a GPU has no Triton.
    """
    name = portable.__name__
    kernel = cache(lambda: getattr(import_module(f"forebay_kernels.gpu.{module}"), name))

    @recordable
    @wraps(portable)
    def run(*args: Inputs.args, **kwargs: Inputs.kwargs) -> Result:
        first = cast(Tensor, args[0])
        if not uses_triton(first.device):
            return portable(*args, **kwargs)
        refuse_interpreted(first.dtype)
        return cast(Result, kernel()(*args, **kwargs))

    return run


def _instruction(name: str) -> Callable[..., object]:
    recording = import_module("forebay_kernels.cpu.recording")
    found: Callable[..., object] | None = getattr(recording, name, None)
    if found is None:
        raise CannotRecord(f"a program has no instruction for {name}")
    return found


def refuse_interpreted(dtype: torch.dtype) -> None:
    """Raises: ValueError for bfloat16, which Triton's interpreter computes wrong without a word."""
    if dtype == torch.bfloat16 and is_interpreted():
        raise ValueError("Triton's interpreter computes no bfloat16; use float32 or float16")
