"""A step's arrays as native/step.h lays them out, and what they may point to."""

from __future__ import annotations

import ctypes
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay_kernels.cpu.instructions import Fields

_INT, _POINTER = ctypes.c_int32, ctypes.c_void_p
_UNBOUND = 2**31 - 1
_FORMATS = [np.dtype(np.int64)] * 3 + [np.dtype(np.int32)] * 3 + [np.dtype(np.int64)]


class Limits(ctypes.Structure):
    """What a step's numbers must be below."""

    _fields_: ClassVar[Fields] = [
        ("num_ids", _INT),
        ("num_positions", _INT),
        ("num_blocks", _INT),
        ("block_size", _INT),
    ]

    num_ids: int
    num_positions: int
    num_blocks: int
    block_size: int

    @classmethod
    def none(cls) -> Limits:
        """Nothing is known yet."""
        return cls(_UNBOUND, _UNBOUND, 0, 1)

    def lower(self, **limits: int) -> None:
        """Lower some of them."""
        for name, limit in limits.items():
            setattr(self, name, min(limit, getattr(self, name)))

    def set_cache(self, num_blocks: int, block_size: int) -> None:
        """Raises: ValueError if another layer's cache differs."""
        known = (self.num_blocks, self.block_size)
        if self.num_blocks and known != (num_blocks, block_size):
            raise ValueError(f"layers with {known} and {(num_blocks, block_size)} blocks")
        self.num_blocks, self.block_size = num_blocks, block_size

    def __str__(self) -> str:
        return (
            f"{self.num_ids} token ids, {self.num_positions} positions and {self.num_blocks} "
            f"blocks of {self.block_size}"
        )


class Step(ctypes.Structure):
    """native/step.h"""

    num_tokens: int
    num_seqs: int
    num_sampled: int

    _fields_: ClassVar[Fields] = [
        ("num_tokens", _INT),
        ("num_seqs", _INT),
        ("num_sampled", _INT),
        ("block_table_stride", _INT),
        ("token_ids", _POINTER),
        ("positions", _POINTER),
        ("slots", _POINTER),
        ("query_starts", _POINTER),
        ("seq_lens", _POINTER),
        ("block_tables", _POINTER),
        ("sampled_rows", _POINTER),
    ]


class StepArrays(NamedTuple):
    """The same as arrays, for T tokens of S sequences, R of them sampled.

    Shapes: token_ids, positions, slots [T]; query_starts [S + 1]; seq_lens [S]; block_tables
    [S, M]; sampled_rows [R].
    """

    token_ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    slots: NDArray[np.int64]
    query_starts: NDArray[np.int32]
    seq_lens: NDArray[np.int32]
    block_tables: NDArray[np.int32]
    sampled_rows: NDArray[np.int64]

    def describe(self, step: Step) -> None:
        """Point step to them; they must outlive it.

        Raises: ValueError if a shape or a number format is another one.
        """
        num_tokens, num_seqs = len(self.token_ids), len(self.seq_lens)
        if not self._has_shapes(num_tokens, num_seqs) or not self._has_formats():
            raise ValueError(
                "a step's arrays are no T token ids, positions and slots and R rows of int64, "
                "S + 1 starts, S lengths and S by M blocks of int32, each in order"
            )
        step.num_tokens, step.num_seqs = num_tokens, num_seqs
        step.num_sampled = len(self.sampled_rows)
        step.block_table_stride = self.block_tables.shape[1]
        for name, array in self._asdict().items():
            setattr(step, name, array.__array_interface__["data"][0])

    def _has_shapes(self, num_tokens: int, num_seqs: int) -> bool:
        return (
            len(self.positions) == len(self.slots) == num_tokens
            and len(self.query_starts) == num_seqs + 1
            and len(self.block_tables) == num_seqs
            and self.block_tables.ndim == 2
        )

    def _has_formats(self) -> bool:
        formats = [array.dtype for array in self]
        is_in_order = [array.flags.c_contiguous for array in self]
        return formats == _FORMATS and all(is_in_order)
