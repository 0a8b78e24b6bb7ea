"""How layers go over the stages of a pipeline, each stage as a model of its own, and the largest.

The runtime cuts a model by the same numbers as sizing counts it by.
"""

from dataclasses import replace
from functools import lru_cache

from forebay_budget.inspection import PACKED_DTYPE, Inspection, ModelConfig, WeightGroup
from forebay_budget.terms import weights_bytes


def count_stage_layers(
    num_layers: int, num_stages: int, layer_bytes: int, end_bytes: int
) -> tuple[int, ...]:
    """How many layers each stage has, the first stage first, so that the largest is smallest.

    end_bytes: what the first stage holds beside its layers (the embedding), and the last too (the
    head). There are at least as many layers as stages.
    """
    counts = [1] * num_stages
    sizes = [layer_bytes] * num_stages
    sizes[0] += end_bytes
    sizes[-1] += end_bytes
    for _ in range(num_layers - num_stages):
        # The later of equals: the first stage has the engine's own work to do too.
        stage = min(range(num_stages), key=lambda index: (sizes[index], -index))
        counts[stage] += 1
        sizes[stage] += layer_bytes
    return tuple(counts)


@lru_cache(maxsize=64)
def split_layers(inspection: Inspection, num_stages: int) -> tuple[range, ...]:
    """The layers of each stage, by the files' bytes; layers of a model count alike."""
    config = inspection.config
    in_layers = sum(group.num_bytes for group in inspection.weights if group.kind != "embedding")
    in_ends = sum(group.num_bytes for group in inspection.weights if group.kind == "embedding")
    if not config.tie_word_embeddings:
        in_ends //= 2
    counts = count_stage_layers(
        config.num_layers, num_stages, in_layers // config.num_layers, in_ends
    )
    ends = [sum(counts[: index + 1]) for index in range(num_stages)]
    return tuple(range(end - count, end) for end, count in zip(ends, counts, strict=True))


def list_stages(inspection: Inspection, num_stages: int) -> tuple[Inspection, ...]:
    """What the ranks of each stage hold together, as if it were a whole model; the first first."""
    if num_stages == 1:
        return (inspection,)
    last = num_stages - 1
    return tuple(
        _stage(inspection, len(layers), num_ends=(index == 0) + (index == last))
        for index, layers in enumerate(split_layers(inspection, num_stages))
    )


def longest_config(inspection: Inspection, num_stages: int) -> ModelConfig:
    """The numbers of a stage with the most layers: none has a larger KV cache."""
    stages = split_layers(inspection, num_stages)
    return replace(inspection.config, num_layers=max(map(len, stages)))


@lru_cache(maxsize=256)
def stage_weights_bytes(
    inspection: Inspection,
    num_stages: int,
    tp: int,
    dtype: str,
    quantization: str,
    is_native: bool = False,
) -> int:
    """Bytes of a rank's weights in the stage where they take most, as they are served.

    The stage with the most layers is another where the ends are heavy. Arguments: as of
    `terms.weights_bytes`.
    """
    # Those in the middle are mostly alike.
    stages = dict.fromkeys(list_stages(inspection, num_stages))
    return max(weights_bytes(stage, tp, dtype, quantization, is_native) for stage in stages)


def _stage(inspection: Inspection, num_layers: int, num_ends: int) -> Inspection:
    """So many layers, and so many of the model's two ends."""
    config = inspection.config
    # A tied head is a copy of its own, where the embedding is on another rank.
    num_matrices = 1 if config.tie_word_embeddings else 2

    def share(group: WeightGroup) -> WeightGroup:
        if group.kind == "embedding":
            part, whole, common = num_ends, num_matrices, 0
        else:
            part, whole, common = num_layers, config.num_layers, _common_elements(group, config)
        num_elements = common - (common - group.num_elements) * part // whole
        num_bytes = -(-group.num_bytes * num_elements // max(1, group.num_elements))
        return replace(group, num_elements=num_elements, num_bytes=num_bytes)

    return replace(
        inspection,
        config=replace(config, num_layers=num_layers),
        weights=tuple(map(share, inspection.weights)),
    )


def _common_elements(group: WeightGroup, config: ModelConfig) -> int:
    """What of a group every stage holds: the last norm, which is among the vectors."""
    is_vectors = group.kind == "replicated" and group.dtype != PACKED_DTYPE
    return min(group.num_elements, config.hidden_size) if is_vectors else 0
