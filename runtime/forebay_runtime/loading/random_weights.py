"""A model's shape with random numbers for weights, made where they are used: for benchmarks.

Its folder has a config.json and a safetensors file of a header with a hole behind it. So whatever
reads headers sees the model as it would be, and next to nothing lies on the disk.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from forebay_budget.layout import list_plain_tensors
from forebay_budget.model_config import read_hf_config
from forebay_budget.safetensors import read_safetensors_header
from forebay_budget.source import LocalFile
from forebay_runtime.loading.cut import ALL

_MARK = "weights.random"
_WEIGHTS = "model.safetensors"
_DTYPE = "BF16"
_SPREAD = 0.02
"""Of matrices, as models are trained from: with it states stay finite through many layers."""


def write_random_model(folder: Path, config: Mapping[str, Any]) -> None:
    """Make a folder of what config.json says, without weights.

    Raises: ModelError where the runtime does not run such a model.
    """
    folder.mkdir(parents=True, exist_ok=True)
    header, offset = {}, 0
    for tensor in list_plain_tensors(read_hf_config(config, _DTYPE), _DTYPE):
        end = offset + tensor.num_bytes
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": (offset, end),
        }
        offset = end
    text = json.dumps(header).encode()
    (folder / "config.json").write_text(json.dumps(config))
    with (folder / _WEIGHTS).open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(stream.tell() + offset)
    (folder / _MARK).touch()


def has_random_weights(path: Path) -> bool:
    """Whether write_random_model made a folder."""
    return (path / _MARK).exists()


class RandomCheckpoint:
    """A Checkpoint of which a tensor's numbers depend on its name and the device alone."""

    has_whole_norms = True

    def __init__(self, path: Path) -> None:
        tensors, _ = read_safetensors_header(LocalFile(path / _WEIGHTS))
        self._shapes = {tensor.name: tensor.shape for tensor in tensors}

    def has(self, name: str) -> bool:
        """Is there a tensor of this name?"""
        return name in self._shapes

    def stored_name(self, name: str) -> str:
        """The name itself."""
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape."""
        return self._shapes[name]

    def read_into(self, name: str, out: Tensor, rows: slice = ALL, columns: slice = ALL) -> None:
        """Fill out: ones for a norm, zeros for a bias, and a matrix around zero; also a part."""
        if name.endswith("norm.weight"):
            out.fill_(1.0)
        elif name.endswith(".bias"):
            out.zero_()
        else:
            random = torch.Generator(out.device).manual_seed(zlib.crc32(name.encode()))
            out.normal_(0.0, _SPREAD, generator=random)
