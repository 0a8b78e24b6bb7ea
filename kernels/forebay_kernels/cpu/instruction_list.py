"""A program's instructions in order, the buffers that they work on, and their native form."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping
from dataclasses import dataclass

from forebay_kernels.cpu.buffer_places import Life, place_buffers
from forebay_kernels.cpu.instructions import Instruction
from forebay_kernels.cpu.library import native_library
from forebay_kernels.cpu.step import Limits, Step
from forebay_kernels.cpu.thread_pool import ThreadPool


@dataclass(frozen=True, eq=False)
class Buffer:
    """Rows that an instruction writes: one of width numbers for each token, or sampled token."""

    width: int
    is_sampled: bool = False


@dataclass(frozen=True)
class _Use:
    """An instruction and the buffers that its pointers will point to, from a column on."""

    instruction: Instruction
    pointers: Mapping[str, tuple[Buffer, int]]


class InstructionList:
    """Instructions whose buffers have no memory yet."""

    def __init__(self) -> None:
        """None yet."""
        self._uses: list[_Use] = []

    def __len__(self) -> int:
        return len(self._uses)

    def add(self, instruction: Instruction, pointers: Mapping[str, tuple[Buffer, int]]) -> None:
        """Append one. The last of its buffers tells which rows it is about."""
        last, _ = list(pointers.values())[-1]
        instruction.rows = int(last.is_sampled)
        self._uses.append(_Use(instruction, pointers))

    @property
    def buffers(self) -> dict[Buffer, Life]:
        """All of them, and the instructions between which each lives; their bytes are 0 here."""
        spans: dict[Buffer, Life] = {}
        for index, use in enumerate(self._uses):
            for buffer, _ in use.pointers.values():
                first = spans[buffer].first if buffer in spans else index
                spans[buffer] = Life(0, first, index)
        return spans

    def place(self, num_bytes: Mapping[Buffer, int]) -> tuple[dict[Buffer, int], int]:
        """The offsets of those buffers that num_bytes has, and the bytes of all of these."""
        spans = self.buffers
        lives = [
            Life(size, spans[each].first, spans[each].last) for each, size in num_bytes.items()
        ]
        offsets, total = place_buffers(lives)
        return dict(zip(num_bytes, offsets, strict=True)), total

    def point(self, addresses: Mapping[Buffer, int]) -> None:
        """Let all instructions point to their buffers."""
        for use in self._uses:
            for name, (buffer, column) in use.pointers.items():
                setattr(use.instruction, name, addresses[buffer] + 4 * column)

    def to_pointers(self) -> ctypes.Array[ctypes.c_void_p]:
        """Their addresses; they stand as long as the list does."""
        found = (ctypes.addressof(use.instruction) for use in self._uses)
        return (ctypes.c_void_p * len(self._uses))(*found)


class NativeProgram:
    """Instructions as the library runs them."""

    def __init__(
        self,
        instructions: InstructionList,
        limits: Limits,
        pool: ThreadPool,
        beside: NativeProgram | None = None,
    ) -> None:
        """beside: one on the same pool, whose scratch it uses.

        Raises: RuntimeError if there is no native library.
        """
        self._library = native_library()
        self._library.fb_new_program.restype = ctypes.c_void_p
        self._kept = (instructions, pool)
        self._pool = pool.handle
        self._handle: ctypes.c_void_p = ctypes.c_void_p(
            self._library.fb_new_program(
                instructions.to_pointers(),
                len(instructions),
                ctypes.byref(limits),
                pool.num_threads,
                None if beside is None else beside._handle,
            )
        )
        weakref.finalize(self, self._library.fb_delete_program, self._handle)

    def run(self, step: Step, nanoseconds: ctypes.Array[ctypes.c_int64] | None) -> bool:
        """Was the step within the limits, and computed?"""
        return bool(
            self._library.fb_run_program(self._handle, ctypes.byref(step), self._pool, nanoseconds)
        )
