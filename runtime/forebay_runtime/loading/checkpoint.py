"""A model's weights by name, whatever files they lie in.

Models ask by Hugging Face's names and get each tensor written into a place of their own, converted
to its dtype, so that nothing is held twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from torch import Tensor

from forebay_budget.blueprint import Blueprint
from forebay_budget.inspection import ModelError
from forebay_budget.locate import is_gguf
from forebay_runtime.loading.folder import FolderCheckpoint
from forebay_runtime.loading.gguf_file import GgufCheckpoint


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

    def read_into(self, name: str, out: Tensor) -> None:
        """Write a tensor into out, which has its shape and any floating dtype.

        Raises: ModelError if it is stored in a way that cannot be read.
        """


def open_checkpoint(path: Path, blueprint: Blueprint) -> Checkpoint:
    """Open what locate_model found: a GGUF file or a folder of safetensors."""
    if is_gguf(path):
        return GgufCheckpoint(path, blueprint)
    return FolderCheckpoint(path)


def read_tensor(checkpoint: Checkpoint, name: str, out: Tensor) -> Tensor:
    """Read a tensor into out and return it.

    Raises: ModelError naming a tensor that is missing, or whose shape is not out's.
    """
    if not checkpoint.has(name):
        raise ModelError(
            "IncompleteModel", f"The checkpoint has no tensor {checkpoint.stored_name(name)}."
        )
    # A matrix of one row may be stored as a vector.
    if tuple(out.shape) not in (stored := checkpoint.shape(name), (1, *stored)):
        raise ModelError(
            "BadConfig",
            f"{checkpoint.stored_name(name)} has the shape {list(stored)}, but by "
            f"the model's configuration it should have {list(out.shape)}.",
        )
    checkpoint.read_into(name, out)
    return out
