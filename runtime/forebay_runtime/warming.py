"""Warms an engine's parts on all ranks, and says what of memory and time that took."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from forebay_budget.terms import Terms
from forebay_runtime.config import EngineConfig
from forebay_runtime.drafting.draft_model import DraftModel
from forebay_runtime.engine import Warmth
from forebay_runtime.parallel.ensemble import Ensemble
from forebay_runtime.runner.model_runner import ModelRunner
from forebay_runtime.sampling.sampler import Sampler
from forebay_runtime.start import warmup
from forebay_runtime.start.gpu_room import allowed_bytes, explain_excess
from forebay_runtime.start.memory import Measurement, compare_terms, split_overhead
from forebay_runtime.start.meter import Meter
from forebay_runtime.start.out_of_memory import explain_out_of_memory
from forebay_runtime.start.phases import Phase, Start
from forebay_runtime.start.rank_assembly import capture_graphs

logger = logging.getLogger(__name__)

_MOST_CPU_STEP_SECONDS = 2.0
"""Everyone who runs waits for a whole step, so where one would take longer it is made smaller."""


@dataclass(frozen=True)
class Warming:
    """What is warmed, who takes part, and the plan by which it is judged."""

    config: EngineConfig
    planned: Terms
    stages: tuple[range, ...]
    """The layers of each stage."""
    start: Start
    ensemble: Ensemble
    runner: ModelRunner
    sampler: Sampler
    draft: DraftModel | None = None

    def run(self) -> Warmth:
        """Run every shape, capture graphs, and measure memory meanwhile.

        Raises: StartError if there is too little of it.
        """
        start, device = self.start, self.runner.model.placement.device.type
        self.ensemble.begin_measuring()
        draft = self.draft
        measurement = Measurement(self.runner, draft.runner if draft is not None else None)
        knob = "lower --max-num-batched-tokens, --max-num-seqs or the KV cache"
        with start.phase(Phase.SHAPES), explain_out_of_memory("activations", knob):
            warmup.run_shapes(self.runner, self.sampler)
            if draft is not None:
                warmup.run_shapes(draft.runner, draft.sampler)
        measurement.end_shapes()
        with start.phase(Phase.GRAPHS):
            capture_graphs(self.runner)
            if draft is not None:
                capture_graphs(draft.runner)
                draft.runner.end_warm_up()
                self.runner.shapes.watch(lambda: draft.runner.num_cold)
        slowest_seconds = warmup.end_warm_up(self.runner, self.stages)
        self.ensemble.expect_steps(slowest_seconds)
        measured = self.ensemble.largest(measurement.terms())
        most_step_seconds = _MOST_CPU_STEP_SECONDS if device == "cpu" else None
        logger.info(
            "Warmed up seconds=%.1f full_step_seconds=%.2f most_step_seconds=%s",
            start.seconds[Phase.SHAPES] + start.seconds[Phase.GRAPHS],
            slowest_seconds,
            most_step_seconds,
        )
        warmth = Warmth(
            slowest_seconds,
            compare_terms(self.planned, measured),
            most_step_seconds,
            device,
            self.runner.kernels,
            {str(phase): seconds for phase, seconds in start.seconds.items()},
        )
        if device == "cpu":
            return warmth
        self._check_promise()
        num_ranks = self.ensemble.topology.num_ranks
        graphs_bytes = self.runner.graphs_bytes
        parts = split_overhead(measured.overhead_bytes, start, graphs_bytes, num_ranks)
        return replace(warmth, overhead_parts=parts)

    def _check_promise(self) -> None:
        meter = Meter(self.runner.model.placement.device)
        most_bytes = allowed_bytes(self.config.gpu_memory_utilization, meter.total_bytes())
        excess = explain_excess(meter.used_bytes() + meter.peak_bytes(), most_bytes)
        if excess is not None:
            logger.warning("Exceeded the promised memory: %s", excess)
