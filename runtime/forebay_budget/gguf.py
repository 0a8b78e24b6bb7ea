"""Read a GGUF file's header (versions 2 and 3): metadata and where tensors lie, never their data.

The runtime takes weights and tokenizer from it. Headers are distrusted: every count is checked
against the bytes that are there before anything is allocated for it.
Source: the GGUF specification in ggml's repository (docs/gguf.md).
"""

import io
import math
import os
import struct
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from forebay_budget.ggml import GGML_TYPES, GGML_TYPES_BY_NAME
from forebay_budget.inspection import ModelError

MAX_HEADER_BYTES = 64 * 1024**2
MAX_STRING_BYTES = 4 * 1024**2
MAX_ARRAY_ITEMS = 4 * 1024**2
"""Over all arrays of a header: three times what a vocabulary of 256,000 with merges takes."""
MAX_ENTRIES = 65_536
"""Of metadata, and of tensors."""
_MAX_NESTING = 4
_MAX_DIMENSIONS = 4
_DEFAULT_ALIGNMENT = 32


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

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes of the data in the file."""
        ggml_type = GGML_TYPES_BY_NAME[self.ggml_type_name]
        return self.num_elements // ggml_type.block_elements * ggml_type.block_bytes


@dataclass(frozen=True)
class GgufHeader:
    """A file's metadata and tensors."""

    metadata: dict[str, Any]
    tensors: tuple[GgufTensor, ...]
    data_offset: int
    """Where tensor data begins, from the file's start."""


def read_gguf_header(
    source: str | os.PathLike[str] | BinaryIO, *, max_array_items: int = MAX_ARRAY_ITEMS
) -> GgufHeader:
    """Read the header of a file, or of a binary reader that stands at the file's start.

    Arrays of more than max_array_items are left out of the metadata: sizing needs no vocabulary.
    Raises: ModelError where it is no GGUF, is cut short, or states what cannot be.
    """
    if isinstance(source, (str, os.PathLike)):
        name, opened = Path(source).name, _open(Path(source))
    else:
        name, opened = str(getattr(source, "name", "The file")), nullcontext(source)
    with opened as stream:
        try:
            return _read_header(_Reader(stream, max_array_items))
        except _Malformed as problem:
            raise ModelError("BadGguf", f"{name} is not a usable GGUF file: {problem}.") from None


def _open(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise ModelError("ModelNotFound", f"{path} cannot be read: {problem}.") from error


class _Malformed(Exception):
    """What is wrong with a header, without the file's name."""


class _Reader:
    """Takes little-endian values off a stream and never reads past the header's limits."""

    def __init__(self, stream: BinaryIO, max_array_items: int) -> None:
        self._stream = stream
        self._max_array_items = max_array_items
        self._items_left = MAX_ARRAY_ITEMS
        self.position = 0
        self.size = _size_of(stream)
        self._end = min(MAX_HEADER_BYTES, math.inf if self.size is None else self.size)

    def read(self, num_bytes: int) -> bytes:
        end = self.position + num_bytes
        if end > self._end:
            self.expect(num_bytes)
        data = self._stream.read(num_bytes)
        if len(data) != num_bytes:
            raise _Malformed(f"it ends after {self.position + len(data)} bytes, within its header")
        self.position = end
        return data

    def expect(self, num_bytes: int) -> None:
        """Refuse a count before anything is allocated for it."""
        if self.size is not None and num_bytes > self.size - self.position:
            raise _Malformed(f"it ends after {self.size} bytes, within its header")
        if num_bytes > MAX_HEADER_BYTES - self.position:
            raise _Malformed(f"its header is longer than {MAX_HEADER_BYTES} bytes")

    def unpack(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.read(struct.calcsize(f"<{code}")))[0]

    def text(self) -> str:
        (num_bytes,) = _LENGTH.unpack(self.read(_LENGTH.size))
        if num_bytes > MAX_STRING_BYTES:
            self.expect(num_bytes)
            raise _Malformed(f"a string at byte {self.position} has {num_bytes} bytes")
        data = self.read(num_bytes)
        try:
            return data.decode()
        except UnicodeDecodeError:
            # Tokens of byte-level vocabularies are not always whole characters.
            return data.decode(errors="surrogateescape")

    def value(self, kind: int, nesting: int = 0) -> Any:
        if kind in _SCALARS:
            return self.unpack(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY and nesting < _MAX_NESTING:
            return self._array(nesting)
        raise _Malformed(f"a value at byte {self.position} has the unknown type {kind}")

    def _array(self, nesting: int) -> list[Any] | None:
        """Read an array; None stands for one that is longer than the caller wants."""
        kind, num_items = self.unpack("I"), self.unpack("Q")
        is_wanted = num_items <= self._max_array_items
        if kind in _SCALARS:
            code = _SCALARS[kind]
            self.expect(num_items * struct.calcsize(code))
            self._count(num_items)
            data = self.read(num_items * struct.calcsize(code))
            return list(struct.unpack(f"<{num_items}{code}", data)) if is_wanted else None
        least_bytes = 8 if kind == _STRING else 12
        self.expect(num_items * least_bytes)
        self._count(num_items)
        read = self.text if kind == _STRING else partial(self.value, kind, nesting + 1)
        if is_wanted:
            return [read() for _ in range(num_items)]
        for _ in range(num_items):
            read()
        return None

    def _count(self, num_items: int) -> None:
        self._items_left -= num_items
        if self._items_left < 0:
            raise _Malformed(f"its arrays hold more than {MAX_ARRAY_ITEMS} items")


_SCALARS: dict[int, str] = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_LENGTH = struct.Struct("<Q")
_STRING = 8
_ARRAY = 9


def _size_of(stream: BinaryIO) -> int | None:
    """Bytes from here to the end; None where the stream cannot tell."""
    if not stream.seekable():
        return None
    start = stream.tell()
    end = stream.seek(0, io.SEEK_END)
    stream.seek(start)
    return end - start


def _read_header(reader: _Reader) -> GgufHeader:
    num_tensors, num_entries = _read_counts(reader)
    metadata: dict[str, Any] = {}
    for _ in range(num_entries):
        key = reader.text()
        if key in metadata:
            raise _Malformed(f"its metadata names {key!r} twice")
        value = reader.value(reader.unpack("I"))
        if value is not None:
            metadata[key] = value
    alignment = _alignment(metadata)
    tensors = tuple(_read_tensor(reader, alignment) for _ in range(num_tensors))
    data_offset = -(-reader.position // alignment) * alignment
    _check_data(tensors, data_offset, reader.size)
    return GgufHeader(metadata, tensors, data_offset)


def _read_counts(reader: _Reader) -> tuple[int, int]:
    if reader.read(4) != b"GGUF":
        raise _Malformed("it does not begin with the letters GGUF")
    version = reader.unpack("I")
    if version in (2 << 24, 3 << 24):
        raise _Malformed("it is big-endian; convert it to little-endian")
    if version not in (2, 3):
        raise _Malformed(f"it has version {version}; known are 2 and 3")
    num_tensors, num_entries = reader.unpack("Q"), reader.unpack("Q")
    if max(num_tensors, num_entries) > MAX_ENTRIES:
        raise _Malformed(
            f"it states {num_tensors} tensors and {num_entries} entries of metadata, "
            f"more than {MAX_ENTRIES}"
        )
    reader.expect(num_entries * _LEAST_ENTRY_BYTES + num_tensors * _LEAST_TENSOR_BYTES)
    return num_tensors, num_entries


_LEAST_ENTRY_BYTES = 8 + 4 + 1
_LEAST_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8


def _alignment(metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 8 <= alignment <= 2**20 or alignment & (alignment - 1):
        raise _Malformed(f"its alignment {alignment!r} is no power of two from 8 on")
    return alignment


def _read_tensor(reader: _Reader, alignment: int) -> GgufTensor:
    name = reader.text()
    num_dimensions = reader.unpack("I")
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise _Malformed(
            f"tensor {name[:80]!r} has {num_dimensions} dimensions; it may have 1 to 4"
        )
    shape = tuple(reader.unpack("Q") for _ in range(num_dimensions))[::-1]
    kind, offset = reader.unpack("I"), reader.unpack("Q")
    ggml_type = GGML_TYPES.get(kind)
    if ggml_type is None:
        raise _Malformed(f"tensor {name[:80]!r} has the unknown type {kind}")
    if min(shape) < 1 or math.prod(shape) >= 2**63 or shape[-1] % ggml_type.block_elements:
        raise _Malformed(f"tensor {name[:80]!r} has the impossible shape {list(shape)}")
    if offset % alignment:
        raise _Malformed(f"tensor {name[:80]!r} lies at {offset}, off the alignment {alignment}")
    return GgufTensor(name, shape, ggml_type.name, offset)


def _check_data(tensors: tuple[GgufTensor, ...], data_offset: int, size: int | None) -> None:
    """Refuse names used twice, tensors over each other, and data that the file does not have."""
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise _Malformed("two of its tensors have the same name")
    end = 0
    for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
        if tensor.offset < end:
            raise _Malformed(f"tensor {tensor.name[:80]!r} lies over another")
        end = tensor.offset + tensor.num_bytes
    if size is not None and tensors and data_offset + end > size:
        raise _Malformed(
            f"it has {size} bytes, but its tensors need {data_offset + end}: it was cut short"
        )
