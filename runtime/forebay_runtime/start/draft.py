"""A draft model beside the served one: what it must have in common with it, its weights and cache.

Called by assembly. Its cache has as many blocks as the served model's, of as many tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from forebay_budget.draft import find_draft_fault
from forebay_budget.terms import kv_token_bytes
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.drafting.draft_model import DraftModel
from forebay_runtime.loading.description import Description, describe_model
from forebay_runtime.models.decoder import Decoder
from forebay_runtime.models.link import ALONE
from forebay_runtime.models.placement import Placement
from forebay_runtime.models.shard import Stage
from forebay_runtime.sampling.sampler import Sampler
from forebay_runtime.scheduling.batch import Limits
from forebay_runtime.start.placement_choice import choose_placement
from forebay_runtime.start.rank_assembly import build_runner, load_model


@dataclass(frozen=True)
class DraftPlan:
    """A draft model that is asked for: what it is, and in which number formats it runs."""

    config: EngineConfig
    """The engine's, as it is for the draft model."""
    described: Description
    placement: Placement

    @property
    def block_bytes(self) -> int:
        """What one block of its cache takes."""
        token_bytes = kv_token_bytes(
            self.described.inspection.config, 1, self.placement.kv_cache_dtype
        )
        return self.config.block_size * token_bytes

    def limits(self, served: Limits) -> Limits:
        """Its own: texts that are longer than it knows get no guesses."""
        longest = self.described.inspection.config.max_position_embeddings
        return replace(
            served, max_model_len=min(served.max_model_len, longest), max_num_proposed_tokens=0
        )

    def load(self, served: Limits) -> Decoder:
        """Read its weights.

        Raises: StartError or ModelError.
        """
        num_layers = self.described.inspection.config.num_layers
        stage = Stage(0, num_layers, num_layers)
        return load_model(self.described, self.placement, self.limits(served), ALONE, stage)


def plan_draft(config: EngineConfig, served: Description) -> DraftPlan | None:
    """Describe the draft model that is asked for, if one is.

    Raises: StartError if it cannot guess for the served one; ModelError if it is none.
    """
    asked = config.speculative
    if asked is None or asked.model is None:
        return None
    described = describe_model(Path(asked.model))
    fault = find_draft_fault(served.inspection.config, described.inspection.config, asked.model)
    if fault is not None:
        raise StartError(f"--speculative-config: {fault}")
    own = replace(config, quantization=asked.quantization, kv_cache_memory_bytes=None)
    try:
        return DraftPlan(own, described, choose_placement(own, described))
    except StartError as error:
        raise StartError(f"--speculative-config, the draft model {asked.model}: {error}") from error


def build_draft(plan: DraftPlan, model: Decoder, num_blocks: int, served: Limits) -> DraftModel:
    """Its cache and its runner.

    Raises: StartError if there is too little memory.
    """
    limits = plan.limits(served)
    runner = build_runner(plan.config, model, num_blocks, limits)
    return DraftModel(runner, Sampler(), limits.max_model_len)
