"""Read a GGUF file's header (versions 2 and 3): its metadata and where its tensors lie, never their data.

The runtime reads weights and tokenizer through it; headers are distrusted: every count is checked against the
bytes that are there before anything is allocated for it.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class GgufTensor:
    """One tensor's entry."""

    name: str
    shape: tuple[int, ...]
    """Row-major, as torch writes it ([rows, columns]): the reverse of the order in the file."""
    ggml_type_name: str
    """`F32`, `F16`, `BF16`, `Q4_1`, …"""
    offset: int
    """From GgufHeader.data_offset, not from the file's start."""


@dataclass(frozen=True)
class GgufHeader:
    """A file's metadata and tensors."""

    metadata: dict[str, Any]
    tensors: tuple[GgufTensor, ...]
    data_offset: int
    """Where tensor data begins, from the file's start."""
