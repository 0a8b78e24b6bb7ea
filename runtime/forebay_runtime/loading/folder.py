"""Weights from a Hugging Face folder: one safetensors file or several shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from forebay_budget.inspection import ModelError
from forebay_budget.safetensors import list_shards
from forebay_budget.source import LocalFolder
from forebay_runtime.loading.cut import ALL


class FolderCheckpoint:
    """A Checkpoint over safetensors files, which stay mapped while it lives."""

    has_whole_norms = False

    def __init__(self, path: Path) -> None:
        """Open all shards.

        Raises: ModelError if one is missing or damaged.
        """
        self._shards: dict[str, Any] = {}
        for shard_name in list_shards(LocalFolder(path)):
            try:
                shard = safe_open(path / shard_name, framework="pt")
            except (SafetensorError, OSError) as error:
                raise ModelError(
                    "BadSafetensors", f"{shard_name} is no usable safetensors file: {error}."
                ) from error
            for name in shard.keys():  # noqa: SIM118 — a shard is no mapping
                self._shards[name] = shard

    def has(self, name: str) -> bool:
        """Is there a tensor of this name?"""
        return name in self._shards

    def stored_name(self, name: str) -> str:
        """The name itself."""
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape."""
        return tuple(self._shards[name].get_slice(name).get_shape())

    def read_into(self, name: str, out: Tensor, rows: slice = ALL, columns: slice = ALL) -> None:
        """Write a tensor, or a part of it, into out, converting its dtype.

        Raises: ModelError if its dtype is not a floating one.
        """
        tensor = self.read_raw(name, rows, columns)
        if not tensor.is_floating_point() or tensor.element_size() < 2:
            raise ModelError(
                "UnsupportedDtype",
                f"{name} is stored as {tensor.dtype}, which the runtime does not read; it reads "
                "float64, float32, float16 and bfloat16.",
            )
        out.copy_(tensor)

    def read_raw(self, name: str, rows: slice = ALL, columns: slice = ALL) -> Tensor:
        """A tensor, or a part of it, in the dtype it is stored in.

        Raises: ModelError if there is none.
        """
        if name not in self._shards:
            raise ModelError("IncompleteModel", f"The checkpoint has no tensor {name}.")
        stored = self._shards[name].get_slice(name)
        tensor: Tensor = stored[rows, columns] if columns != ALL else stored[rows]
        return tensor
