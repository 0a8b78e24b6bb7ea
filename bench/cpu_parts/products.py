"""Products of a model's own shapes, each format of weights, from one row to a prompt's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cpu_parts.limits import least_seconds
from cpu_parts.row import Row
from forebay_kernels.cpu.native_structs import InputForm
from forebay_kernels.cpu.packed_matrix import CodeScales, PackedMatrix, pack_codes, pack_dense
from forebay_kernels.cpu.product import Product
from forebay_kernels.cpu.workspace import own_workspace

BATCHES = (1, 8, 32, 128, 512)
_ALL_COPIES_BYTES = 96 * 2**20
"""More than most caches hold: a step's other matrices have driven a matrix out when it is read."""
_FEW_ROWS = 16
"""From so many on, numbers are multiplied for longer than weights are read."""


@dataclass(frozen=True)
class Shape:
    """A matrix of N outputs by K inputs, and how often a step multiplies by one of them."""

    name: str
    num_outputs: int
    num_inputs: int
    num_layers: int


@dataclass(frozen=True)
class Format:
    """How weights are kept, what of the processor multiplies them, and by which form of inputs."""

    name: str
    build: Callable[[int, int], PackedMatrix]
    kind: str
    input_form: InputForm = InputForm.ROUNDED
    torch_dtype: torch.dtype = torch.float32


def shapes_of(layer: Sequence[tuple[str, int, int]], num_layers: int, vocab: int) -> list[Shape]:
    """Of a decoder: its layer's, and its head's."""
    hidden = layer[0][2]
    found = [Shape(name, outputs, inputs, num_layers) for name, outputs, inputs in layer]
    return [*found, Shape("head", vocab, hidden, 1)]


MODELS = {
    "SmolLM2-135M": shapes_of(
        [("qkv", 960, 576), ("o", 576, 576), ("gate_up", 3072, 576), ("down", 576, 1536)],
        30,
        49_152,
    ),
    "1B": shapes_of(
        [("qkv", 3072, 2048), ("o", 2048, 2048), ("gate_up", 16_384, 2048), ("down", 2048, 8192)],
        16,
        128_256,
    ),
    "7B": shapes_of(
        [("qkv", 6144, 4096), ("o", 4096, 4096), ("gate_up", 28_672, 4096), ("down", 4096, 14_336)],
        32,
        32_000,
    ),
}


def _codes(
    bits: int, group_size: int, *, has_mins: bool = False
) -> Callable[[int, int], PackedMatrix]:
    def build(num_outputs: int, num_inputs: int) -> PackedMatrix:
        codes = torch.randint(0, 2**bits, (num_outputs, num_inputs), dtype=torch.uint8)
        scales = torch.rand(-(-num_inputs // group_size), num_outputs) * 0.01 + 0.001
        mins = -8 * scales if has_mins else None
        return pack_codes(codes, CodeScales(bits, group_size, scales, mins=mins))

    return build


def _dense(dtype: torch.dtype) -> Callable[[int, int], PackedMatrix]:
    return lambda num_outputs, num_inputs: pack_dense(
        torch.randn(num_outputs, num_inputs).to(dtype)
    )


FORMATS = (
    Format("float32", _dense(torch.float32), "float32"),
    Format("bf16", _dense(torch.bfloat16), "bf16", torch_dtype=torch.bfloat16),
    Format("8 bit, groups of 32", _codes(8, 32), "int8"),
    Format("6 bit, groups of 16", _codes(6, 16), "int8"),
    Format("4 bit, groups of 32", _codes(4, 32), "int8"),
    Format("4 bit with mins, groups of 32", _codes(4, 32, has_mins=True), "int8"),
    Format("4 bit, groups of 128", _codes(4, 128), "int8"),
    Format("4 bit, exact inputs", _codes(4, 32), "float32", input_form=InputForm.EXACT),
)


def measure(
    model: str, formats: Sequence[Format], batches: Sequence[int], *, has_torch: bool
) -> Iterator[Row]:
    """A row for each matrix, and one for all the products of a step."""
    for kept in formats:
        found: dict[int, list[tuple[Shape, Row]]] = {batch: [] for batch in batches}
        for shape in MODELS[model]:
            matrix = kept.build(shape.num_outputs, shape.num_inputs)
            for batch in batches:
                row = _time(model, shape, (kept, matrix), batch, has_torch=has_torch)
                found[batch].append((shape, row))
                yield row
        for batch, rows in found.items():
            yield _whole_step(model, kept, batch, rows)


def _time(
    model: str,
    shape: Shape,
    given: tuple[Format, PackedMatrix],
    batch: int,
    *,
    has_torch: bool,
) -> Row:
    kept, matrix = given
    copies = copies_of(matrix, batch)
    x = torch.randn(batch, shape.num_inputs)
    outs = torch.empty(batch, shape.num_outputs)
    workspace = own_workspace()
    products = [Product(each, x, outs, input_form=kept.input_form) for each in copies]

    def run() -> None:
        for product in products:
            product.run(workspace)

    with workspace.awake():
        seconds = least_seconds(run, _repeats(batch)) / len(products)
    return Row(
        part=f"products, {model}",
        what=f"{shape.name} {shape.num_outputs}×{shape.num_inputs}, {kept.name}",
        batch=batch,
        seconds=seconds,
        num_bytes=matrix.num_bytes,
        num_operations=2 * batch * shape.num_outputs * shape.num_inputs,
        kind=kept.kind,
        torch_seconds=_time_torch(shape, kept, x) if has_torch else None,
    )


def copies_of(matrix: PackedMatrix, batch: int) -> list[PackedMatrix]:
    """Equal matrices, in as much memory that none is still in a cache when its turn comes."""
    enough = 1 if batch >= _FEW_ROWS else -(-_ALL_COPIES_BYTES // matrix.num_bytes)
    return [matrix, *(_copy(matrix) for _ in range(enough - 1))]


def _copy(matrix: PackedMatrix) -> PackedMatrix:
    def cloned(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.clone()

    return replace(
        matrix,
        weights=matrix.weights.clone(),
        scales=cloned(matrix.scales),
        zeros=cloned(matrix.zeros),
        mins=cloned(matrix.mins),
    )


def _time_torch(shape: Shape, kept: Format, x: Tensor) -> float:
    """By torch's operator, on weights of its own dtype."""
    weight = torch.randn(shape.num_outputs, shape.num_inputs).to(kept.torch_dtype)
    copies = 1 if x.shape[0] >= _FEW_ROWS else -(-_ALL_COPIES_BYTES // weight.nbytes)
    weights = [weight.clone() for _ in range(copies)]
    rows = x.to(kept.torch_dtype)

    def run() -> None:
        for each in weights:
            torch.nn.functional.linear(rows, each)

    return least_seconds(run, _repeats(x.shape[0])) / copies


def _repeats(batch: int) -> int:
    return 3 if batch >= 128 else 7


def _whole_step(model: str, kept: Format, batch: int, rows: Sequence[tuple[Shape, Row]]) -> Row:
    """All layers' products and the head's, as if each row of the batch were sampled."""

    def total(numbers: Sequence[float]) -> float:
        pairs = zip(rows, numbers, strict=True)
        return sum(shape.num_layers * number for (shape, _), number in pairs)

    torch_times = [row.torch_seconds for _, row in rows if row.torch_seconds is not None]
    return Row(
        part=f"products, {model}",
        what=f"**all of a step**, {kept.name}",
        batch=batch,
        seconds=total([row.seconds for _, row in rows]),
        num_bytes=int(total([row.num_bytes for _, row in rows])),
        num_operations=int(total([row.num_operations for _, row in rows])),
        kind=kept.kind,
        torch_seconds=total(torch_times) if len(torch_times) == len(rows) else None,
    )
