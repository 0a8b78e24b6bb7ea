"""Which tensors a packed matrix lies in, by their names' endings, shapes and dtypes.

The layout's check goes by it, and the runtime reads by the same names.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from forebay_budget.inspection import ModelError
from forebay_budget.packing import Packing
from forebay_budget.rounding import row_step

_WORD_BITS = 32
_FLOATS = ("F16", "BF16", "F32")


@dataclass(frozen=True)
class PackedTensor:
    """One of the tensors that a matrix lies in; num_elements: those of the matrix that it holds."""

    ending: str
    shape: tuple[int, ...]
    dtypes: tuple[str, ...]
    num_elements: int = 0
    is_optional: bool = False


def list_packed_tensors(
    packing: Packing, name: str, shape: tuple[int, int]
) -> tuple[PackedTensor, ...]:
    """The tensors of a matrix [outputs, inputs]; name is only for messages.

    Raises: ModelError where the matrix cannot be packed like that.
    """
    rows, columns = shape
    if packing.group_size and columns % packing.group_size:
        raise ModelError(
            "UnsupportedQuantization",
            f"{name} has {columns} inputs, no whole number of quantization_config's groups of "
            f"{packing.group_size}; the runtime supports whole groups only.",
        )
    _check_words(packing, name, rows, columns)
    num_groups = columns // packing.group_size if packing.group_size else 1
    return tuple(_LAYOUTS[packing.layout](packing, rows, columns, num_groups))


def _check_words(packing: Packing, name: str, rows: int, columns: int) -> None:
    a_word = _WORD_BITS // packing.bits
    if packing.layout in ("awq", "gptq") and rows % a_word:
        raise ModelError(
            "UnsupportedQuantization",
            f"{name} has {rows} outputs, which {packing.method} packs by {a_word}; the runtime "
            "supports whole words only.",
        )
    if not packing.group_size and columns % row_step(packing.bits):
        raise ModelError(
            "UnsupportedQuantization",
            f"{name} has {columns} inputs; where they share one scale, the runtime supports "
            f"multiples of {row_step(packing.bits)} only.",
        )


def _list_awq(packing: Packing, rows: int, columns: int, groups: int) -> Iterator[PackedTensor]:
    packed_rows = _words(packing, rows)
    yield PackedTensor("qweight", (columns, packed_rows), ("I32",), rows * columns)
    yield PackedTensor("qzeros", (groups, packed_rows), ("I32",))
    yield PackedTensor("scales", (groups, rows), _FLOATS)


def _list_gptq(packing: Packing, rows: int, columns: int, groups: int) -> Iterator[PackedTensor]:
    yield PackedTensor("qweight", (_words(packing, columns), rows), ("I32",), rows * columns)
    yield PackedTensor("qzeros", (groups, _words(packing, rows)), ("I32",))
    yield PackedTensor("scales", (groups, rows), _FLOATS)
    yield PackedTensor("g_idx", (columns,), ("I32",), is_optional=not packing.is_reordered)


def _list_packed(packing: Packing, rows: int, columns: int, groups: int) -> Iterator[PackedTensor]:
    packed_columns = _words(packing, columns)
    yield PackedTensor("weight_packed", (rows, packed_columns), ("I32",), rows * columns)
    yield PackedTensor("weight_scale", (rows, groups), _FLOATS)
    yield PackedTensor("weight_shape", (2,), ("I64", "I32"), is_optional=True)
    if packing.has_zeros:
        yield PackedTensor("weight_zero_point", (_words(packing, rows), groups), ("I32",))
    if packing.is_reordered:
        yield PackedTensor("weight_g_idx", (columns,), ("I32", "I64"))


def _list_int8(packing: Packing, rows: int, columns: int, groups: int) -> Iterator[PackedTensor]:
    yield PackedTensor("weight", (rows, columns), ("I8",), rows * columns)
    yield PackedTensor("weight_scale", (rows, groups), _FLOATS)


def _words(packing: Packing, count: int) -> int:
    """The 32-bit words that so many numbers take; the last may not be full."""
    return -(-count * packing.bits // _WORD_BITS)


_LAYOUTS = {"awq": _list_awq, "gptq": _list_gptq, "packed": _list_packed, "int8": _list_int8}
