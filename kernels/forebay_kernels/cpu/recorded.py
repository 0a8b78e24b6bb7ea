"""What stands for a step's tensors while a model is recorded as a program.

A model runs once over these in place of tensors: each operation adds an instruction to the program
and returns what stands for its result. They have no numbers, and nothing but operations takes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from torch import Tensor

if TYPE_CHECKING:
    from forebay_kernels.cpu.instruction_list import Buffer
    from forebay_kernels.cpu.program import Program

    PassesFor = Tensor
else:
    PassesFor = object


class CannotRecord(Exception):
    """A model does something that is no instruction; the message says what, for a log."""


class Recorded(PassesFor):
    """Something of a program's step. Models are told it is a tensor, as all they do is call ops."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def __getattr__(self, name: str) -> NoReturn:
        """Raises: CannotRecord, as who looks into a tensor is no instruction."""
        raise CannotRecord(f"something that is no instruction asks for a tensor's {name}")


class RecordedIds(Recorded):
    """A step's token ids, or their positions: [T]. A program has both at hand."""


class RecordedRows(Recorded):
    """A row of float32 for each token, or for each sampled one."""

    def __init__(self, program: Program, buffer: Buffer) -> None:
        super().__init__(program)
        self.buffer = buffer

    def then(self, buffer: Buffer) -> RecordedRows:
        """What an instruction made of them."""
        return RecordedRows(self.program, buffer)


class RecordedPlan:
    """A step's attention and the slots of its tokens: a program has both at hand."""

    slots = None
