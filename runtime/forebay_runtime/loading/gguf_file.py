"""Weights from a GGUF file, dequantised as they are read, or as the codes that they are.

The file is mapped, never read whole. Models ask by Hugging Face's names and get what a Hugging Face
checkpoint would give, but for norms' weights.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from forebay_budget.blueprint import Blueprint
from forebay_budget.gguf import GgufTensor, read_gguf_header
from forebay_budget.inspection import ModelError
from forebay_budget.tensor_names import to_gguf
from forebay_kernels.code_matrix import CodeMatrix
from forebay_runtime.loading.cut import ALL
from forebay_runtime.loading.dequantise import (
    CODED_TYPES,
    READABLE_TYPES,
    dequantise,
    dequantise_columns,
    read_codes,
)


class GgufCheckpoint:
    """A Checkpoint over one GGUF file."""

    has_whole_norms = True

    def __init__(self, path: Path, blueprint: Blueprint) -> None:
        """Read the header and map the data.

        Raises: ModelError if it is no usable GGUF.
        """
        # Vocabularies are of no use here and take long to read.
        header = read_gguf_header(path, max_array_items=1_024)
        self._tensors = {tensor.name: tensor for tensor in header.tensors}
        self._data_offset = header.data_offset
        # Copy-on-write, because torch warns of memory that it could not write to.
        self._data = torch.from_numpy(np.memmap(path, dtype=np.uint8, mode="c"))
        self._family = blueprint.family
        self._num_interleaved_heads: dict[str, int] = {}
        if self._family.is_interleaved_in_gguf:
            self._num_interleaved_heads = {
                "attn_q": blueprint.sizes.num_heads,
                "attn_k": blueprint.sizes.num_kv_heads,
            }

    def has(self, name: str) -> bool:
        """Is there a tensor of this name?"""
        return self.stored_name(name) in self._tensors

    def stored_name(self, name: str) -> str:
        """The name that GGUF has for a Hugging Face one; experts of a layer share theirs."""
        return to_gguf(name, self._family)[0]

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, row-major."""
        stored, expert = to_gguf(name, self._family)
        shape = self._tensors[stored].shape
        return shape if expert is None else shape[1:]

    def read_into(self, name: str, out: Tensor, rows: slice = ALL, columns: slice = ALL) -> None:
        """Dequantise a tensor, or a part of it, into out; rows of heads are cut between heads.

        Raises: ModelError if its type is not one that the runtime reads.
        """
        tensor, raw = self._raw_part(name, rows)
        if len(tensor.shape) == 1:
            # A matrix of one row is stored as a vector.
            out = out.view(-1)
        elif columns != ALL:
            num_columns = tensor.shape[-1]
            return dequantise_columns(raw, tensor.ggml_type_name, columns, num_columns, out)
        dequantise(raw, tensor.ggml_type_name, out)

    def has_codes(self, name: str) -> bool:
        """Is there a matrix of this name, and is it stored as codes?"""
        tensor = self._tensors.get(self.stored_name(name))
        if tensor is None or len(tensor.shape) < 2:
            return False
        return tensor.ggml_type_name in CODED_TYPES

    def read_codes(self, name: str, rows: slice = ALL, columns: slice = ALL) -> CodeMatrix:
        """A matrix, or a part of it, as the codes that it is stored as; columns in steps of 32."""
        tensor, raw = self._raw_part(name, rows)
        return read_codes(raw, tensor.ggml_type_name, None if columns == ALL else columns)

    def _raw_part(self, name: str, rows: slice) -> tuple[GgufTensor, Tensor]:
        """A tensor's entry, and the bytes of some of its rows, in the order of Hugging Face's."""
        stored, expert = to_gguf(name, self._family)
        tensor = self._tensors[stored]
        if tensor.ggml_type_name not in READABLE_TYPES:
            raise ModelError(
                "UnsupportedDtype",
                f"{tensor.name} is stored as {tensor.ggml_type_name}, which the runtime does not "
                f"read; it reads {', '.join(READABLE_TYPES)}.",
            )
        raw = self._raw_rows(tensor, expert)
        num_heads = self._num_interleaved_heads.get(tensor.name.split(".")[-2])
        head_rows = 0 if num_heads is None else raw.shape[0] // num_heads
        raw = raw[rows]
        if head_rows:
            raw = _pair_halves(raw, raw.shape[0] // head_rows)
        return tensor, raw

    def _raw_rows(self, tensor: GgufTensor, expert: int | None) -> Tensor:
        """A tensor's bytes, one row of the matrix (or one element of a vector) a row."""
        start, num_bytes = self._data_offset + tensor.offset, tensor.num_bytes
        if expert is None:
            return self._data[start : start + num_bytes].view(tensor.shape[0], -1)
        num_bytes //= tensor.shape[0]
        start += expert * num_bytes
        return self._data[start : start + num_bytes].view(tensor.shape[1], -1)


def _pair_halves(rows: Tensor, num_heads: int) -> Tensor:
    """Bring the rows of each head from (0, D/2, 1, D/2 + 1, …) to (0, 1, 2, …)."""
    num_pairs = rows.shape[0] // num_heads // 2
    return rows.view(num_heads, num_pairs, 2, -1).transpose(1, 2).reshape(rows.shape)
