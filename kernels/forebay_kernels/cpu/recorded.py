"""What stands for a step's tensors while a model is recorded as a program.

A model runs once over these in place of tensors: each operation adds an instruction to the program
and returns what stands for its result. They have no numbers, and nothing but operations takes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class CannotRecord(Exception):
    """A model does something that is no instruction; the message says what, for a log."""


@dataclass(frozen=True)
class Recorded:
    """Something of a step of a program."""

    program: Any = field(repr=False)


@dataclass(frozen=True)
class RecordedIds(Recorded):
    """A step's token ids, or their positions: [T]. Any program has them at hand."""


@dataclass(frozen=True)
class RecordedRows(Recorded):
    """A row of float32 for each token, or for each sampled one."""

    buffer: Any


@dataclass(frozen=True)
class RecordedPlan:
    """A step's attention and the slots of its tokens: a program has both at hand."""

    slots: None = None
