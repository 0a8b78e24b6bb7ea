"""Read safetensors headers: which shards a folder has, and what each states about its tensors.

A shard is eight bytes of length, that many bytes of JSON, then data, which is never read here.
Source: the format section of the safetensors README.
"""

import math
import struct
from typing import Any

from forebay_budget.inspection import ModelError
from forebay_budget.layout import StoredTensor
from forebay_budget.source import Folder, Source, parse_json_object, read_json_object

INDEX_NAME = "model.safetensors.index.json"
MAX_HEADER_BYTES = 16 * 1024**2
FIRST_READ_BYTES = 64 * 1024
"""Enough for the headers of most shards, so that one request to a hub is enough for each."""

DTYPE_BYTES: dict[str, int] = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 1),
}


def list_shards(folder: Folder) -> list[str]:
    """Name the safetensors files that make the model: the index's, the only one, or all.

    Raises: ModelError with the reason IncompleteModel or BadSafetensors.
    """
    names = set(folder.names())
    if INDEX_NAME in names:
        return _shards_of_index(folder, names)
    if "model.safetensors" in names:
        return ["model.safetensors"]
    shards = sorted(name for name in names if name.endswith(".safetensors"))
    # `consolidated*` is the same model again, in Mistral's own layout.
    return [name for name in shards if not name.startswith("consolidated")] or shards


def _shards_of_index(folder: Folder, names: set[str]) -> list[str]:
    index, _ = read_json_object(folder.open(INDEX_NAME))
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(n, str) for n in weight_map.values()):
        raise ModelError("BadSafetensors", f"{INDEX_NAME} has no weight_map of file names.")
    shards = sorted(set(weight_map.values()))
    missing = [shard for shard in shards if shard not in names]
    if missing:
        raise ModelError(
            "IncompleteModel",
            f"{folder.label} lacks {len(missing)} of the {len(shards)} shards that {INDEX_NAME} "
            f"names, the first is {missing[0][:200]!r}.",
        )
    return shards


def read_safetensors_header(source: Source) -> tuple[list[StoredTensor], bytes]:
    """Read one shard's header: its tensors, and its bytes.

    Raises: ModelError with the reason BadSafetensors where it is cut short or contradicts itself.
    """
    first = source.read(0, FIRST_READ_BYTES)
    if len(first) < 8:
        raise _bad(source, "it has no header")
    (length,) = struct.unpack("<Q", first[:8])
    if length > MAX_HEADER_BYTES or length > source.size() - 8:
        raise _bad(source, f"it states a header of {length} bytes, but has {source.size()} in all")
    header = first[8 : 8 + length]
    if len(header) < length:
        header += source.read(8 + len(header), length - len(header))
    if len(header) < length:
        raise _bad(source, "it ends within its header")
    document = parse_json_object(header, f"The header of {source.name}")
    return _parse(source, document, 8 + length), header


def _parse(source: Source, header: dict[str, Any], data_start: int) -> list[StoredTensor]:
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    tensors, spans = [], []
    for name, entry in entries.items():
        try:
            dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
            numbers_are_whole = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
            is_right = numbers_are_whole and end - begin == math.prod(shape) * DTYPE_BYTES[dtype]
        except (TypeError, KeyError, ValueError):
            is_right = False
        if not is_right:
            raise _bad(source, f"its entry for {name[:80]!r} contradicts itself")
        tensors.append(StoredTensor(name, tuple(shape), dtype, end - begin))
        spans.append((begin, end))
    _check_spans(source, sorted(spans), data_start)
    return tensors


def _check_spans(source: Source, spans: list[tuple[int, int]], data_start: int) -> None:
    covered = 0
    for begin, end in spans:
        if begin < covered:
            raise _bad(source, "two of its tensors overlap")
        covered = end
    if data_start + covered > source.size():
        raise _bad(
            source,
            f"it has {source.size()} bytes, but its tensors need {data_start + covered}: "
            "it was cut short",
        )


def _bad(source: Source, problem: str) -> ModelError:
    return ModelError("BadSafetensors", f"{source.name} is no usable safetensors file: {problem}.")
