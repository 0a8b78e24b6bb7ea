"""What a rank holds and does, as rank 0 tells it. Rank 0 itself does the same in assembly."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import torch

from forebay_budget.inspection import ModelError
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.loading.description import describe_model
from forebay_runtime.models.decoder import Decoder
from forebay_runtime.parallel.messages import (
    Answer,
    BeginMeasuring,
    Build,
    Capture,
    Carry,
    CountRoom,
    Load,
    Measure,
    Message,
    Prepare,
    Score,
    Step,
)
from forebay_runtime.parallel.rank_link import Meeting, RankLink, join_world
from forebay_runtime.runner.model_runner import ModelRunner
from forebay_runtime.start.kernel_preparation import compile_kernels
from forebay_runtime.start.memory import Measurement
from forebay_runtime.start.meter import Meter
from forebay_runtime.start.placement_choice import choose_placement
from forebay_runtime.start.rank_assembly import (
    build_runner,
    choose_stage,
    count_room,
    load_model,
    open_device,
    set_threads,
)


@dataclass(frozen=True)
class Loaded:
    """What Load gave."""

    config: EngineConfig
    link: RankLink
    model: Decoder


class RankPart:
    """A rank's model and runner, each there once it was told."""

    def __init__(self, rank: int, meeting_file: int) -> None:
        """meeting_file: the number of the open file that all ranks meet by."""
        self._rank = rank
        self._meeting_file = meeting_file
        self._device = torch.device("cpu")
        self._part: Loaded | None = None
        self._runner: ModelRunner | None = None
        self._measurement: Measurement | None = None

    @property
    def _loaded(self) -> Loaded:
        if self._part is None:
            raise RuntimeError("this rank was told to go on before it was told to load")
        return self._part

    @property
    def _built(self) -> ModelRunner:
        if self._runner is None:
            raise RuntimeError("this rank was told to compute before it was told to build")
        return self._runner

    def do(self, message: Message) -> Answer | None:
        """Do it, and answer where that is wanted."""
        match message:
            case Step(inputs, num_layers):
                self._built.compute(inputs, num_layers)
            case Score(num_rows):
                self._score(num_rows)
            case Carry(num_rows):
                self._carry(num_rows)
            case Capture():
                if self._measurement is not None:
                    self._measurement.end_shapes()
                self._built.capture_graphs()
            case _:
                return self._answer(message)
        return None

    def _answer(self, message: Message) -> Answer:
        """Prepare; what rank 0 should tell of as its own failure is answered, not raised."""
        try:
            match message:
                case Prepare(device):
                    self._prepare(device)
                case Load():
                    self._load(message)
                case Build():
                    self._build(message)
                case BeginMeasuring():
                    self._measurement = Measurement(self._built)
                case Measure() if self._measurement is not None:
                    return Answer(self._measurement.terms())
                case CountRoom():
                    return Answer(count_room(self._loaded.config, self._built))
        except (StartError, ModelError) as error:
            return Answer(failure=str(error))
        return Answer()

    def _prepare(self, device: str) -> None:
        if device == "cuda":
            self._device = torch.device(device, self._rank)
            torch.cuda.set_device(self._device)
        open_device(self._device)

    def _load(self, message: Load) -> None:
        config, topology = message.config, message.topology
        self._part = self._runner = self._measurement = None
        gc.collect()
        set_threads(topology.num_ranks)
        # Before anything can fail here, as rank 0 waits for it.
        meeting = Meeting(self._meeting_file, message.meeting)
        join_world(self._device, meeting, self._rank, topology.num_ranks)
        link = RankLink(topology, self._rank, is_ordered=config.batch_invariant)
        described = describe_model(config.model_path)
        placement = choose_placement(config, described, self._rank)
        compile_kernels(config, described, placement)
        stage = choose_stage(described, topology, self._rank)
        model = load_model(described, placement, message.limits, link, stage)
        self._part = Loaded(config, link, model)

    def _build(self, message: Build) -> None:
        self._runner = self._measurement = None
        gc.collect()
        part = self._loaded
        self._runner = build_runner(part.config, part.model, message.num_blocks, message.limits)
        # What loading took for a moment is over; steps are measured from here.
        Meter(self._device).forget_peak()

    def _score(self, num_rows: int) -> None:
        model = self._built.model
        shape = (num_rows, model.config.sizes.hidden_size)
        hidden = torch.empty(shape, dtype=model.placement.dtype, device=model.placement.device)
        self._built.score(self._loaded.link.share(hidden))

    def _carry(self, num_rows: int) -> None:
        device = self._built.model.placement.device
        token_ids = torch.empty(num_rows, dtype=torch.int64, device=device)
        self._built.carry(self._loaded.link.share(token_ids))
