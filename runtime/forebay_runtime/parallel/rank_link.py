"""A model's link to the other ranks, by torch.distributed: NCCL on GPUs, gloo on CPUs.

Every rank of a topology makes one at the same time, and then calls the same in the same order.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore, PrefixStore

from forebay_runtime.models.shard import Shard
from forebay_runtime.models.topology import Topology

_COLLECTIVE_SECONDS = 600
"""How long one exchange may take: far longer than `watch` takes to find a rank that hangs."""


@dataclass(frozen=True)
class Meeting:
    """Where ranks find each other: memory that all of them have open as file_number, and nobody
    else; it is gone with them. number: which of their meetings this is."""

    file_number: int
    number: int


def join_world(device: torch.device, meeting: Meeting, rank: int, num_ranks: int) -> None:
    """Meet the other ranks, which all live on this host."""
    # Ranks share a pod: its name may resolve to an address that does not answer, loopback does.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    leave_world()
    store = FileStore(f"/proc/self/fd/{meeting.file_number}", num_ranks)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=PrefixStore(str(meeting.number), store),
        rank=rank,
        world_size=num_ranks,
        timeout=timedelta(seconds=_COLLECTIVE_SECONDS),
    )


def leave_world() -> None:
    """Forget the other ranks, if there were any."""
    if dist.is_initialized():
        dist.destroy_process_group()


class RankLink:
    """One rank's Link."""

    def __init__(self, topology: Topology, rank: int, *, is_ordered: bool) -> None:
        """is_ordered: add_up adds in the order of ranks, so that bits depend on nothing else."""
        self._topology = topology
        self._rank = rank
        self._is_ordered = is_ordered
        self.shard: Shard = topology.shard(rank)
        # The world itself, where all ranks share the layers.
        self._shards: Any = None
        if topology.num_stages > 1:
            stages = range(topology.num_stages)
            self._shards = [dist.new_group(topology.ranks_of(s)) for s in stages][
                topology.stage(rank)
            ]

    def add_up(self, x: Tensor) -> Tensor:
        """The sum of all shards' x, the same bits on each; x may be overwritten."""
        if self.shard.is_whole:
            return x
        if not self._is_ordered:
            dist.all_reduce(x, group=self._shards)
            return x
        first, *others = self._gather(x).unbind()
        for other in others:
            first += other
        return first

    def join(self, x: Tensor) -> Tensor:
        """All shards' columns side by side. Shapes: x [T, N]; out [T, size * N]."""
        return x if self.shard.is_whole else self._gather(x).transpose(0, 1).flatten(1)

    def _gather(self, x: Tensor) -> Tensor:
        """All shards' x: [size, *shape]."""
        out = x.new_empty(self.shard.size * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=self._shards)
        return out.view(self.shard.size, *x.shape)

    def send(self, x: Tensor) -> None:
        """Hand x to the same shard of the next stage."""
        dist.send(x.contiguous(), self._rank + self._topology.num_shards)

    def receive(self, x: Tensor) -> Tensor:
        """Fill x with what the same shard of the stage before sent, and return it."""
        dist.recv(x, self._rank - self._topology.num_shards)
        return x

    def give(self, x: Tensor) -> None:
        """Hand x to rank 0, where one rank for all of the last stage calls."""
        if self._rank == self._topology.returning_rank:
            dist.send(x.contiguous(), 0)

    def take(self, x: Tensor) -> Tensor:
        """On rank 0, fill x with what was given; elsewhere leave it as it is."""
        if self._rank == 0:
            dist.recv(x, self._topology.returning_rank)
        return x

    def share(self, x: Tensor) -> Tensor:
        """Fill x with rank 0's, and return it."""
        dist.broadcast(x, 0)
        return x
