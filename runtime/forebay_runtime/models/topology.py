"""Which rank holds what: stages of layers, each split into shards.

Ranks of a stage are neighbours: rank = stage * num_shards + shard. Pure; imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from forebay_runtime.models.shard import Shard


@dataclass(frozen=True)
class Topology:
    """num_shards: the degree of tensor parallelism; num_stages: that of pipeline parallelism."""

    num_shards: int = 1
    num_stages: int = 1

    @property
    def num_ranks(self) -> int:
        """Processes, and on GPUs as many of these."""
        return self.num_shards * self.num_stages

    @property
    def returning_rank(self) -> int:
        """Who hands the last stage's results to rank 0: its first rank."""
        return (self.num_stages - 1) * self.num_shards

    def shard(self, rank: int) -> Shard:
        """Which part of its layers a rank holds."""
        return Shard(rank % self.num_shards, self.num_shards)

    def stage(self, rank: int) -> int:
        """Which stage a rank belongs to."""
        return rank // self.num_shards

    def ranks_of(self, stage: int) -> list[int]:
        """The ranks that share a stage's layers."""
        first = stage * self.num_shards
        return list(range(first, first + self.num_shards))
