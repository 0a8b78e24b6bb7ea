"""Which sizes a model and a machine can have, and the sentence for those that they cannot."""

from __future__ import annotations

from collections.abc import Sequence

from forebay_budget.inspection import ModelConfig
from forebay_budget.terms import MOST_SHARDS, admissible_tensor_parallel_sizes, describe_divided
from forebay_runtime.config import StartError
from forebay_runtime.models.topology import Topology


def check_topology(topology: Topology, sizes: ModelConfig, quantization: str) -> None:
    """Refuse what does not divide the model.

    Raises: StartError with what was asked, what is possible, and the flag.
    """
    tp, pp = topology.num_shards, topology.num_stages
    possible = admissible_tensor_parallel_sizes(sizes, quantization)
    if tp > MOST_SHARDS:
        raise StartError(
            f"--tensor-parallel-size {tp} is more than {MOST_SHARDS}, the GPUs of a node that are "
            f"linked; choose {_either(possible)}, or spread its layers by --pipeline-parallel-size"
        )
    if tp not in possible:
        raise StartError(
            f"--tensor-parallel-size {tp} does not divide the model "
            f"({describe_divided(sizes, quantization)}); choose {_either(possible)}, or spread its "
            "layers by --pipeline-parallel-size"
        )
    if pp > sizes.num_layers:
        raise StartError(
            f"--pipeline-parallel-size {pp} is more than the {sizes.num_layers} layers that the "
            f"model has; choose at most {sizes.num_layers}"
        )


def check_length(max_model_len: int | None, num_positions: int) -> None:
    """Refuse requests of more tokens than the model has positions.

    Raises: StartError.
    """
    if max_model_len is not None and max_model_len > num_positions:
        raise StartError(
            f"--max-model-len {max_model_len} is more than the {num_positions} positions that the "
            "model has; lower it, or leave it out for the longest that fits"
        )


def check_gpus(num_ranks: int, num_gpus: int) -> None:
    """Refuse more ranks than there are GPUs.

    Raises: StartError.
    """
    if num_ranks > num_gpus:
        raise StartError(
            f"--tensor-parallel-size times --pipeline-parallel-size is {num_ranks}, but torch sees "
            f"{num_gpus} GPUs; give the container {num_ranks}, or lower one of the two"
        )


def _either(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last
