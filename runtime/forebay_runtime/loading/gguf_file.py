"""Weights from a GGUF file, dequantised as they are read.

The file is mapped, never read whole. Models ask by Hugging Face's names, which are translated here.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from forebay_budget.gguf import GgufTensor, read_gguf_header
from forebay_budget.inspection import ModelConfig, ModelError
from forebay_runtime.loading.dequantise import READABLE_TYPES, dequantise

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")

_INTERLEAVED_ARCHITECTURES = ("llama", "mistral")
"""Their files pair neighbouring rows of q and k for the rotary embedding, as Meta's code does;
transformers and this runtime pair row i with row i + D/2. Other architectures' files do so too."""


class GgufCheckpoint:
    """A Checkpoint over one GGUF file."""

    def __init__(self, path: Path, config: ModelConfig) -> None:
        """Read the header and map the data.

        Raises: ModelError if it is no usable GGUF.
        """
        # Vocabularies are of no use here and take long to read.
        header = read_gguf_header(path, max_array_items=1_024)
        self._tensors = {tensor.name: tensor for tensor in header.tensors}
        self._data_offset = header.data_offset
        # Copy-on-write, because torch warns of memory that it could not write to.
        self._data = torch.from_numpy(np.memmap(path, dtype=np.uint8, mode="c"))
        self._num_interleaved_heads: dict[str, int] = {}
        if header.metadata.get("general.architecture") in _INTERLEAVED_ARCHITECTURES:
            self._num_interleaved_heads = {
                "attn_q": config.num_heads,
                "attn_k": config.num_kv_heads,
            }

    def has(self, name: str) -> bool:
        """Is there a tensor of this name?"""
        return self.stored_name(name) in self._tensors

    def stored_name(self, name: str) -> str:
        """The name that GGUF has for a Hugging Face one."""
        module, _, kind = name.rpartition(".")
        match = _LAYER.fullmatch(module)
        if match is None:
            return f"{_NAMES.get(module, module)}.{kind}"
        return f"blk.{match[1]}.{_LAYER_NAMES.get(match[2], match[2])}.{kind}"

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, row-major."""
        return self._tensors[self.stored_name(name)].shape

    def read_into(self, name: str, out: Tensor) -> None:
        """Dequantise a tensor into out.

        Raises: ModelError if its type is not one that the runtime reads.
        """
        tensor = self._tensors[self.stored_name(name)]
        if tensor.ggml_type_name not in READABLE_TYPES:
            raise ModelError(
                "UnsupportedDtype",
                f"{tensor.name} is stored as {tensor.ggml_type_name}, which the runtime does not "
                f"read; it reads {', '.join(READABLE_TYPES)}.",
            )
        rows = self._raw_rows(tensor)
        num_heads = self._num_interleaved_heads.get(tensor.name.split(".")[-2])
        if num_heads is not None:
            rows = _pair_halves(rows, num_heads)
        dequantise(rows, tensor.ggml_type_name, out)

    def _raw_rows(self, tensor: GgufTensor) -> Tensor:
        """A tensor's bytes, one row of the matrix (or one element of a vector) a row."""
        start = self._data_offset + tensor.offset
        return self._data[start : start + tensor.num_bytes].view(tensor.shape[0], -1)


def _pair_halves(rows: Tensor, num_heads: int) -> Tensor:
    """Bring the rows of each head from (0, D/2, 1, D/2 + 1, …) to (0, 1, 2, …)."""
    num_pairs = rows.shape[0] // num_heads // 2
    return rows.view(num_heads, num_pairs, 2, -1).transpose(1, 2).reshape(rows.shape)
