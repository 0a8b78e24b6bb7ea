"""How layers go over the stages of a pipeline, and the largest stage as a model of its own.

The runtime cuts a model by the same numbers as sizing counts it by.
"""

from dataclasses import replace
from functools import lru_cache

from forebay_budget.inspection import Inspection, WeightGroup


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


@lru_cache(maxsize=64)
def largest_stage(inspection: Inspection, num_stages: int) -> Inspection:
    """A stage with the most layers and with one of the ends, as if it were a whole model.

    No stage is larger; with three stages or more that with the most layers may have no end, and be
    smaller by it.
    """
    if num_stages == 1:
        return inspection
    config = inspection.config
    num_layers = max(len(layers) for layers in split_layers(inspection, num_stages))
    # A tied head is a copy of its own, where the embedding is on another rank.
    num_ends = 1 if config.tie_word_embeddings else 2

    def share(group: WeightGroup) -> WeightGroup:
        part, whole = (
            (1, num_ends) if group.kind == "embedding" else (num_layers, config.num_layers)
        )
        return replace(
            group,
            num_elements=-(-group.num_elements * part // whole),
            num_bytes=-(-group.num_bytes * part // whole),
        )

    return replace(
        inspection,
        config=replace(config, num_layers=num_layers),
        weights=tuple(share(group) for group in inspection.weights),
    )
