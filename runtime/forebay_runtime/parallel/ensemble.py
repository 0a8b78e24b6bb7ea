"""All ranks of one model, as rank 0 sees them while it assembles an engine.

Assembly says each step to the ensemble and then does the same for its own part; with one rank there
is nobody to say it to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from forebay_budget.terms import Terms
from forebay_runtime.config import EngineConfig
from forebay_runtime.models.link import ALONE, Link
from forebay_runtime.models.topology import Topology
from forebay_runtime.parallel.followers import Followers
from forebay_runtime.parallel.leading_runner import LeadingRunner
from forebay_runtime.parallel.messages import (
    BeginMeasuring,
    Build,
    CountRoom,
    Load,
    Measure,
    Message,
    Prepare,
)
from forebay_runtime.parallel.rank_link import Meeting, RankLink, join_world
from forebay_runtime.runner.model_runner import ModelRunner
from forebay_runtime.scheduling.batch import Limits


class Ensemble:
    """Rank 0 and those that follow it."""

    def __init__(
        self, config: EngineConfig, topology: Topology, followers: Followers | None
    ) -> None:
        """followers: started before; None where this is the only rank."""
        self.topology = topology
        self._config = config
        self._followers = followers
        self.link: Link = ALONE

    def begin_load(self, limits: Limits, device: torch.device) -> None:
        """Meet, and let all others read their parts meanwhile.

        Raises: RankLost, or StartError.
        """
        if self._followers is None:
            return
        self._followers.use(self.topology.num_ranks)
        self._followers.ask(Prepare(device.type))
        meeting = Meeting(self._followers.meeting_file, self._followers.next_meeting())
        self._followers.begin_asking(Load(self._config, self.topology, limits, meeting.number))
        try:
            join_world(device, meeting, 0, self.topology.num_ranks)
            self.link = RankLink(self.topology, 0, is_ordered=self._config.batch_invariant)
        except RuntimeError as error:
            raise self._followers.explain(error) from error

    def begin_build(self, num_blocks: int, limits: Limits) -> None:
        """Let all others make their caches and runners meanwhile."""
        self._begin(Build(num_blocks, limits))

    def begin_measuring(self) -> None:
        """Let all others note what memory they use."""
        self._begin(BeginMeasuring())
        self.wait()

    def wait(self) -> None:
        """Wait for what was begun.

        Raises: RankLost, or StartError with what a rank could not do.
        """
        if self._followers is not None:
            self._followers.collect()

    @property
    def runner_class(self) -> Callable[..., ModelRunner]:
        """What makes rank 0's runner: one that takes the others along, where there are any."""
        if self._followers is None or not isinstance(self.link, RankLink):
            return ModelRunner
        return partial(LeadingRunner, self.link, self._followers)

    def least_room(self, num_blocks: int) -> int:
        """The fewest blocks for which any rank has room; num_blocks is rank 0's own answer."""
        if self._followers is None:
            return num_blocks
        others: list[int] = self._followers.ask(CountRoom())
        return min(num_blocks, *others)

    def largest(self, own: Terms) -> Terms:
        """The memory of the rank that takes most; own is rank 0's."""
        if self._followers is None:
            return own
        others: list[Terms] = self._followers.ask(Measure())
        return max(own, *others, key=lambda terms: terms.total_bytes)

    def expect_steps(self, slowest_seconds: float) -> None:
        """From here on a step that takes far longer is stuck."""
        if self._followers is not None:
            self._followers.expect_steps(slowest_seconds)

    def _begin(self, message: Message) -> None:
        if self._followers is not None:
            self._followers.begin_asking(message)
