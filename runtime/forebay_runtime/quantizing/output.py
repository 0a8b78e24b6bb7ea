"""The folder that is written: whole, or not at all.

Tensors go to shards in a folder beside it, of which no more than one is held in memory; only when
all is there does it get its name.
"""

from __future__ import annotations

import glob
import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from forebay_runtime.quantizing.refusal import QuantizeError

_SHARD_BYTES = 1024**3
_INDEX = "model.safetensors.index.json"
_WHOLE = "model.safetensors"

TEXT_FILES = (
    "tokenizer*.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "generation_config.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
    "LICENSE*",
)
"""Beside weights and config.json: what tokenizers and chat templates are read from."""
_WRITTEN = ("config.json", "model*.safetensors", _INDEX, *TEXT_FILES)
"""All that may be in a folder that is replaced."""


class OutputFolder:
    """A model's folder while it is written; used as a context, within which all is added."""

    def __init__(self, path: Path, *, may_replace: bool, shard_bytes: int = _SHARD_BYTES) -> None:
        """may_replace: a model that is there already goes, once the new one is whole.

        Raises: QuantizeError if something is there that may not go.
        """
        _check_target(path, may_replace)
        # Without this, "." has no name.
        self.path = Path(os.path.abspath(path))
        self._shard_bytes = shard_bytes
        prefix = f".{self.path.name}.unfinished-"
        self.leftovers: Sequence[Path] = sorted(self.path.parent.glob(f"{glob.escape(prefix)}*"))
        """What runs before this one left, that were killed, or are still writing."""
        self._unfinished = self.path.with_name(prefix + secrets.token_hex(4))
        self._held: dict[str, Tensor] = {}
        self._shards: list[list[str]] = []
        self.num_bytes = 0

    def __enter__(self) -> Self:
        """Make the folder that is filled."""
        self._unfinished.mkdir(parents=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the folder its name, or where something failed remove it."""
        try:
            if error is None:
                self._finish()
        except BaseException:
            shutil.rmtree(self._unfinished, ignore_errors=True)
            raise
        if error is not None:
            shutil.rmtree(self._unfinished, ignore_errors=True)

    def add(self, tensors: Mapping[str, Tensor]) -> None:
        """Write tensors, soon.

        Raises: QuantizeError if the disk does not take them.
        """
        for name, tensor in tensors.items():
            self._held[name] = tensor.contiguous().cpu()
            self.num_bytes += tensor.nbytes
        if sum(tensor.nbytes for tensor in self._held.values()) >= self._shard_bytes:
            self._write_shard()

    def add_json(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a file of JSON."""
        (self._unfinished / name).write_text(json.dumps(document, indent=2, ensure_ascii=False))

    def file(self, name: str) -> Path:
        """Where to write another file; folders on the way are made."""
        path = self._unfinished / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _write_shard(self) -> None:
        path = self._unfinished / f"shard-{len(self._shards)}"
        try:
            save_file(self._held, path, metadata={"format": "pt"})
        except (OSError, SafetensorError) as error:
            raise QuantizeError(
                f"{self.path.parent} did not take {path.name}, perhaps as its disk is full: {error}"
            ) from error
        self._shards.append(list(self._held))
        self._held = {}

    def _finish(self) -> None:
        if self._held:
            self._write_shard()
        count = len(self._shards)
        weight_map: dict[str, str] = {}
        for number, names in enumerate(self._shards):
            name = _WHOLE if count == 1 else f"model-{number + 1:05}-of-{count:05}.safetensors"
            (self._unfinished / f"shard-{number}").rename(self._unfinished / name)
            weight_map |= dict.fromkeys(names, name)
        if count > 1:
            index = {"metadata": {"total_size": self.num_bytes}, "weight_map": weight_map}
            self.add_json(_INDEX, index)
        self._replace()

    def _replace(self) -> None:
        if not self.path.exists():
            return os.rename(self._unfinished, self.path)
        replaced = self._unfinished.with_name(f"{self._unfinished.name}-replaced")
        try:
            os.rename(self.path, replaced)
            os.rename(self._unfinished, self.path)
        finally:
            if replaced.exists() and not self.path.exists():
                os.rename(replaced, self.path)
            shutil.rmtree(replaced, ignore_errors=True)


def _check_target(path: Path, may_replace: bool) -> None:
    if path.is_symlink():
        raise QuantizeError(f"{path} is a link; name the folder itself, or another")
    if not path.exists():
        return
    if not may_replace:
        raise QuantizeError(f"{path} exists; name a new folder, or replace it by --force")
    is_model = path.is_dir() and ((path / "config.json").is_file() or not any(path.iterdir()))
    if not is_model:
        raise QuantizeError(
            f"{path} is neither a model's folder nor empty, and --force replaces no others; name "
            "another"
        )
    if (other := _find_other_file(path)) is not None:
        raise QuantizeError(
            f"{path} has {other} beside a model's files, which --force would delete; move it, or "
            "name another folder"
        )


def _find_other_file(folder: Path) -> Path | None:
    """Something in it that is not written here, by its name in the folder."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        is_written = any(
            fnmatchcase(str(name), pattern) and str(name).count("/") == pattern.count("/")
            for pattern in _WRITTEN
        )
        if not is_written and (path.is_symlink() or not path.is_dir()):
            return name
    return None
