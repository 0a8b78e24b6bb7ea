"""A model's weights by name, whatever files they lie in.

Models ask by Hugging Face's names and get each tensor written into a place of their own, converted
to its dtype, so that nothing is held twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import Tensor

from forebay_budget.blueprint import Blueprint
from forebay_budget.inspection import ModelError
from forebay_budget.locate import is_gguf, reading
from forebay_kernels.code_matrix import CodeMatrix
from forebay_runtime.loading.cut import ALL, Cut
from forebay_runtime.loading.random_weights import RandomCheckpoint, has_random_weights


class Checkpoint(Protocol):
    """Named tensors, each read into place."""

    has_whole_norms: bool
    """Norms' weights are as they are used, also in families that train them less an offset."""

    def has(self, name: str) -> bool:
        """Is there a tensor of this name?"""

    def stored_name(self, name: str) -> str:
        """The name in the file, for messages."""

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, row-major."""

    def read_into(self, name: str, out: Tensor, rows: slice = ALL, columns: slice = ALL) -> None:
        """Write a tensor, or a part of it, into out, which has its shape and any floating dtype.

        Only the part is read of the file.

        Raises: ModelError if it is stored in a way that cannot be read.
        """


@runtime_checkable
class PackedCheckpoint(Protocol):
    """A Checkpoint whose matrices may be packed, so that tensors are read as they are stored."""

    def has(self, name: str) -> bool:
        """Is there a tensor of this name?"""

    def read_raw(self, name: str, rows: slice = ALL, columns: slice = ALL) -> Tensor:
        """A tensor, or a part of it, in the dtype it is stored in.

        Raises: ModelError if there is none.
        """


@runtime_checkable
class CodedCheckpoint(Checkpoint, Protocol):
    """A Checkpoint whose matrices may be quantised number by number, as GGUF's are."""

    def has_codes(self, name: str) -> bool:
        """Is there a matrix of this name, and is it stored as codes?"""

    def read_codes(self, name: str, rows: slice = ALL, columns: slice = ALL) -> CodeMatrix:
        """A matrix, or a part of it, as the codes that it is stored as.

        columns: in steps of CODE_STEP.
        """


CODE_STEP = 32
"""Inputs after which a group of every format ends."""


def open_checkpoint(path: Path, blueprint: Blueprint) -> Checkpoint:
    """Open what locate_model found: a GGUF file or a folder of safetensors, or one of neither.

    A format is imported where it is met: benchmarks of random weights run without its library.
    Raises: ModelError if it is gone since, or damaged.
    """
    with reading(path):
        if has_random_weights(path):
            return RandomCheckpoint(path)
        if is_gguf(path):
            from forebay_runtime.loading.gguf_file import GgufCheckpoint

            return GgufCheckpoint(path, blueprint)
        from forebay_runtime.loading.folder import FolderCheckpoint

        return FolderCheckpoint(path)


def read_tensor(checkpoint: Checkpoint, name: str, out: Tensor, cut: Cut | None = None) -> Tensor:
    """Read a tensor, or the part of it that cut says, into out and return it.

    Raises: ModelError naming a tensor that is missing, or whose shape is not out's, or cut's.
    """
    cut = cut or Cut(tuple(out.shape))
    check_shape(checkpoint, name, cut)
    if out.numel():
        checkpoint.read_into(name, out, cut.rows, cut.columns)
    return out


def check_shape(checkpoint: Checkpoint, name: str, cut: Cut) -> None:
    """Raises: ModelError naming a tensor that is missing, or whose shape is not cut's."""
    if not checkpoint.has(name):
        raise ModelError(
            "IncompleteModel", f"The checkpoint has no tensor {checkpoint.stored_name(name)}."
        )
    # A matrix of one row may be stored as a vector.
    if cut.shape not in (stored := checkpoint.shape(name), (1, *stored)):
        raise ModelError(
            "BadConfig",
            f"{checkpoint.stored_name(name)} has the shape {list(stored)}, but by "
            f"the model's configuration it should have {list(cut.shape)}.",
        )
