"""What `--quantization` makes of a plain checkpoint, and what a number then takes in memory.

The one place that says which matrices are rounded, and in which groups: sizing, tensor parallelism
and the runtime's loading go by it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from forebay_budget.inspection import ModelConfig

ROUNDED_BITS = {"INT8": 8, "INT4": 4}
QUANTIZATIONS = ("None", "Auto", *ROUNDED_BITS, "awq", "gptq", "compressed-tensors")
"""The last three ask for nothing to be done, and for a checkpoint that is such a one."""
GROUP_SIZES = (128, 64, 32)
"""Inputs that share a scale: the first of these that divides them all; where none does, a row."""
KEPT_PARTS = ("gate", "shared_expert_gate")
"""Matrices of a layer that choose and weigh experts: small, and each of their numbers decides."""

_STORED_SCALE_BYTES = 2
"""Of a checkpoint's scales, which are kept as stored; those made at load are of the dtype."""
_ZERO_BYTES = 1
_LEAST_CUT_GROUP = 32
"""What a rank's share of each group is filled up to, where inputs belong to groups in no order."""


def to_quantization(text: str) -> str:
    """One of QUANTIZATIONS, whatever its case; what is none stays, for who reads it to refuse."""
    return {name.lower(): name for name in QUANTIZATIONS}.get(text.lower(), text)


@dataclass(frozen=True)
class Grid:
    """What a quantised matrix is kept in: numbers of few bits, and a scale a group.

    group_size: inputs that share a scale, 0 for a whole row. has_zeros: each scale has a zero point
    beside it; has_mins: or a minimum, of the scale's size.
    """

    bits: int
    group_size: int
    has_zeros: bool
    scale_bytes: int
    has_mins: bool = False

    def num_bytes(self, num_elements: int, row_elements: int) -> int:
        """Bytes of matrices with rows of row_elements, which count for one scale a row."""
        per_group = self.scale_bytes + (_ZERO_BYTES if self.has_zeros else 0)
        per_group += self.scale_bytes if self.has_mins else 0
        num_groups = -(-num_elements // (self.group_size or row_elements))
        return -(-num_elements * self.bits // 8) + num_groups * per_group


def row_step(bits: int) -> int:
    """Where a row that shares one scale may be cut: it is kept in words of 16 bytes."""
    return 128 // bits


def choose_group_size(num_inputs: int, bits: int) -> int | None:
    """The inputs that share a scale where a matrix has so many, 0 for all of them; None where it
    cannot be rounded."""
    row = None if num_inputs % row_step(bits) else 0
    return next((size for size in GROUP_SIZES if num_inputs % size == 0), row)


def rounds_part(part: str) -> bool:
    """Is a layer's matrix of this name rounded? Embeddings, the head and norms never are."""
    return part not in KEPT_PARTS


def has_zeros(bits: int) -> bool:
    """Four bits are too few to spend half of them on a side that a group does not have."""
    return bits == 4


def choose_grid(config: ModelConfig, quantization: str, dtype_bytes: int) -> Grid | None:
    """The grid of all rounded matrices, by the smallest group any has; None where none is rounded.

    Rows are larger than any group, so theirs is the grid only where all have one scale each.

    Raises: ValueError where a matrix has no group, which unrounded_inputs tells beforehand.
    """
    bits = ROUNDED_BITS.get(quantization)
    if bits is None:
        return None
    groups = [choose_group_size(inputs, bits) for inputs in list_inputs(config)]
    if None in groups:
        raise ValueError(f"a matrix has no group of {' or '.join(map(str, GROUP_SIZES))} inputs")
    smallest = min((size for size in groups if size), default=0)
    return Grid(bits, smallest, has_zeros(bits), dtype_bytes)


def stored_grid(config: ModelConfig) -> Grid | None:
    """The grid of the matrices that a quantised checkpoint packs."""
    if not config.weight_bits:
        return None
    return Grid(
        config.weight_bits, config.weight_group_size, config.has_weight_zeros, _STORED_SCALE_BYTES
    )


GGML_GRIDS = {
    "Q8_0": Grid(8, 32, False, _STORED_SCALE_BYTES),
    "Q6_K": Grid(6, 16, False, _STORED_SCALE_BYTES),
    "Q5_K": Grid(5, 32, False, _STORED_SCALE_BYTES, has_mins=True),
    "Q5_1": Grid(5, 32, False, _STORED_SCALE_BYTES, has_mins=True),
    "Q5_0": Grid(5, 32, False, _STORED_SCALE_BYTES),
    "Q4_K": Grid(4, 32, False, _STORED_SCALE_BYTES, has_mins=True),
    "Q4_1": Grid(4, 32, False, _STORED_SCALE_BYTES, has_mins=True),
    "Q4_0": Grid(4, 32, False, _STORED_SCALE_BYTES),
    "IQ4_NL": Grid(8, 32, False, _STORED_SCALE_BYTES),
    "Q3_K": Grid(3, 16, False, _STORED_SCALE_BYTES),
    "Q2_K": Grid(2, 16, False, _STORED_SCALE_BYTES, has_mins=True),
}
"""What a GGUF's quantised matrices are kept in where they are not dequantised: their own codes, and
K-quants' scales multiplied out."""


def unrounded_inputs(config: ModelConfig, bits: int) -> int | None:
    """The inputs of a matrix that cannot be rounded; None where all can."""
    return next((n for n in list_inputs(config) if choose_group_size(n, bits) is None), None)


def divides_groups(config: ModelConfig, tp: int, quantization: str) -> bool:
    """Do the ranks' shares of every matrix that is cut across its inputs end where groups end?"""
    if tp == 1 or config.is_weight_reordered:
        return True
    steps = ((inputs, _cut_step(config, inputs, quantization)) for inputs in _cut_inputs(config))
    return not any(step is None or inputs % (tp * step) for inputs, step in steps)


def cut_steps(config: ModelConfig, quantization: str) -> list[int]:
    """How many inputs stay together where a matrix is cut across them; empty where each may go."""
    if config.is_weight_reordered:
        return []
    steps = {_cut_step(config, inputs, quantization) or 1 for inputs in _cut_inputs(config)}
    return sorted(steps - {1})


def _cut_step(config: ModelConfig, inputs: int, quantization: str) -> int | None:
    """Inputs that stay together in a matrix of so many; None where it cannot be rounded.

    A row that is rounded at load stays whole: its scale is that of all its inputs.
    """
    if config.weight_bits:
        return config.weight_group_size or row_step(config.weight_bits)
    bits = ROUNDED_BITS.get(quantization)
    if bits is None:
        return 1
    size = choose_group_size(inputs, bits)
    return inputs if size == 0 else size


def filling_elements(config: ModelConfig, tp: int, num_elements: int) -> int:
    """What num_elements of a rank's packed matrices grow by where inputs are in no order.

    Of such a matrix each rank holds a part of every group, filled up to a whole number of small
    groups; by half of one on average.
    """
    if tp == 1 or not config.is_weight_reordered or not config.weight_group_size:
        return 0
    queries = config.num_heads * config.head_dim
    inner = config.num_experts * config.expert_intermediate_size + config.shared_intermediate_size
    inner = inner or config.intermediate_size
    all_rows = 2 * queries + 2 * config.num_kv_heads * config.head_dim + 3 * inner
    groups = num_elements * (queries + inner) // (all_rows * config.weight_group_size) * tp
    return groups * _LEAST_CUT_GROUP // 2


def list_inputs(config: ModelConfig) -> Iterator[int]:
    """The inputs of each kind of matrix in a layer."""
    yield config.hidden_size
    yield from _cut_inputs(config)


def _cut_inputs(config: ModelConfig) -> Iterator[int]:
    """The inputs of the matrices that close a block: attention's, and each kind of MLP's."""
    yield config.num_heads * config.head_dim
    for size in (
        config.intermediate_size,
        config.expert_intermediate_size,
        config.shared_intermediate_size,
    ):
        if size:
            yield size
