"""Compiles all that a model reaches before its first launch, side by side, into Triton's cache.

By the way that a launch takes, only without launching: so a launch finds under its own key what was
compiled here, in this process and, through the cache, in the next.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from subprocess import CalledProcessError
from threading import Lock
from typing import Any

import torch
import triton
from triton.runtime.jit import JITFunction

from forebay_kernels.gpu.compiling.compilation_count import watch_compilations
from forebay_kernels.gpu.variant import Variant

_TORCH_DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "fp8e4nv": torch.float8_e4m3fn,
    "i1": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
}
_NUMBERS = {"i32": 1 << 20, "i64": 1 << 40}
"""Of each type one that is no other type's and divides by 16; the next is odd and not one."""


@dataclass(frozen=True)
class Prepared:
    """How many variants there are, and how many of them no cache had."""

    num_variants: int
    num_compiled: int


class NoDriver(Exception):
    """Triton cannot talk to the GPU's driver; the message is a sentence that says what it lacks."""


def prepare(variants: Iterable[Variant]) -> Prepared:
    """Have each variant compiled for the current device.

    In threads: the compiler's passes let go of Python, and its assembler is a process.
    Raises: NoDriver; what Triton raises for a kernel that does not compile; OSError if the cache
    takes none.
    """
    _open_driver()
    count = watch_compilations()
    before = count.num_compiled
    # Triton notes in the context that it compiles in threads; 3.6 does not take that back where one
    # fails, and would refuse a second try.
    num_variants = copy_context().run(_warm_up, variants)
    return Prepared(num_variants, count.num_compiled - before)


def _open_driver() -> None:
    """Have Triton build its bridge to the driver, or find it in the cache, before all else."""
    try:
        triton.runtime.driver.active.get_current_device()
    except (RuntimeError, AssertionError, FileNotFoundError, CalledProcessError) as error:
        detail = " ".join(str(error).split()) or type(error).__name__
        raise NoDriver(
            "Triton could not build what it launches kernels by, for which it needs a C compiler "
            f"(gcc, or what CC names), Python's headers and libcuda.so.1 ({detail})"
        ) from error


def _warm_up(variants: Iterable[Variant]) -> int:
    """Compile them; how many there were."""
    num_variants = 0
    with (
        one_parser_at_a_time(),
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
        triton.AsyncCompileMode(pool),
    ):
        for variant in variants:
            num_variants += 1
            variant.kernel.warmup(
                **_arguments(variant),
                grid=(1,),
                num_warps=variant.launch.num_warps,
                num_stages=variant.launch.num_stages,
            )
    return num_variants


@contextmanager
def one_parser_at_a_time() -> Iterator[None]:
    """Let threads take turns at parsing kernels meanwhile.

    CPython before 3.13 counts the depth of the tree that it builds for all threads together, and
    now and then finds that of another one: a SystemError (python/cpython#106905).
    """
    owner = next(each for each in JITFunction.__mro__ if "parse" in vars(each))
    parse, turn = owner.parse, Lock()

    def parse_in_turn(kernel: Any) -> Any:
        with turn:
            return parse(kernel)

    owner.parse = parse_in_turn
    try:
        yield
    finally:
        owner.parse = parse


def _arguments(variant: Variant) -> dict[str, Any]:
    """What a launch of the variant would pass, as far as Triton looks at it."""
    given = {
        name: _argument(type_, name in variant.aligned)
        for name, type_ in variant.signature.items()
        if name not in variant.constants
    }
    return {**given, **variant.constants}


def _argument(type_: str, is_aligned: bool) -> Any:
    if type_.startswith("*"):
        return _Pointer(_TORCH_DTYPES[type_.removeprefix("*")], is_aligned)
    if type_ in _NUMBERS:
        return _NUMBERS[type_] + (not is_aligned)
    return 0.5


class _Pointer:
    """A tensor, as far as a compilation depends on it."""

    def __init__(self, dtype: torch.dtype, is_aligned: bool) -> None:
        self.dtype = dtype
        self._is_aligned = is_aligned

    def data_ptr(self) -> int:
        """An address, of which only the alignment is looked at."""
        return 0 if self._is_aligned else 1

    def ptr_range(self) -> int:
        """The bytes that it may reach over, of which one is promised."""
        return 1 << 40
