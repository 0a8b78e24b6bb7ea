"""Shards, topologies, refusals, and the sentences for how a rank ended."""

import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from forebay_budget.terms import describe_divided
from forebay_runtime.config import StartError
from forebay_runtime.models.shard import Shard
from forebay_runtime.models.topology import Topology
from forebay_runtime.parallel.rank_loss import (
    Blame,
    Finding,
    count_memory_kills,
    describe_exit,
    explain_loss,
)
from forebay_runtime.start.refusals import check_gpus, check_topology
from observed_builder import SMOLLM2


def test_shards_cover_a_total_once_each() -> None:
    parts = [Shard(rank, 3).part(12) for rank in range(3)]
    assert [(part.start, part.stop) for part in parts] == [(0, 4), (4, 8), (8, 12)]
    with pytest.raises(ValueError, match="10 does not divide over 3 ranks"):
        Shard(0, 3).part(10)


@pytest.mark.parametrize(
    ("size", "total", "held"),
    [
        pytest.param(2, 4, [(0, 2), (1, 2)], id="fewer-ranks-than-heads"),
        pytest.param(4, 2, [(0, 2), (0, 2), (1, 2), (1, 2)], id="each-head-twice"),
        pytest.param(3, 1, [(0, 1)] * 3, id="one-head-everywhere"),
    ],
)
def test_more_ranks_than_heads_hold_copies_as_neighbours(
    size: int, total: int, held: list[tuple[int, int]]
) -> None:
    shards = [Shard(rank, size).of_copies(total) for rank in range(size)]
    assert [(shard.rank, shard.size) for shard in shards] == held


def test_ranks_of_a_stage_are_neighbours() -> None:
    topology = Topology(num_shards=2, num_stages=3)
    assert topology.num_ranks == 6
    assert [topology.ranks_of(stage) for stage in range(3)] == [[0, 1], [2, 3], [4, 5]]
    assert [(topology.stage(rank), topology.shard(rank).rank) for rank in (0, 3, 4)] == [
        (0, 0),
        (1, 1),
        (2, 0),
    ]
    assert topology.returning_rank == 4


@pytest.mark.parametrize(
    ("code", "num_killed", "words"),
    [
        pytest.param(-signal.SIGKILL, 0, " was ended by SIGKILL", id="a-signal"),
        pytest.param(-signal.SIGKILL, 1, "killed by the kernel, as the pod is out of", id="memory"),
        pytest.param(-signal.SIGSEGV, 1, " was ended by SIGSEGV", id="another-signal"),
        pytest.param(-99, 0, " was ended by signal 99", id="a-signal-without-a-name"),
        pytest.param(3, 0, " ended with exit code 3; its own log", id="an-exit-code"),
    ],
)
def test_how_a_rank_ended_is_said(code: int, num_killed: int, words: str) -> None:
    assert words in describe_exit(code, num_killed)


def found(rank: int, blame: Blame, failed_at: float = 0.0) -> Finding:
    return Finding(blame, failed_at, f"Rank {rank} of 4", f" {blame.name}")


@pytest.mark.parametrize(
    ("findings", "words"),
    [
        pytest.param(
            [found(1, Blame.ERROR, 7.1), found(2, Blame.EXIT), found(3, Blame.SIGNAL)],
            "Rank 3 of 4 SIGNAL",
            id="what-is-killed-ends-the-others-with-errors",
        ),
        pytest.param(
            [found(1, Blame.ERROR, 7.1), found(2, Blame.ERROR, 7.0), found(3, Blame.EXIT)],
            "Rank 2 of 4 ERROR",
            id="the-first-error-is-the-others-cause",
        ),
        pytest.param(
            [found(1, Blame.STUCK), found(2, Blame.STUCK), found(3, Blame.SILENT)],
            "Rank 3 of 4 SILENT",
            id="the-others-wait-for-what-is-stopped",
        ),
        pytest.param([found(2, Blame.STUCK)], "Rank 2 of 4 STUCK", id="one-that-hangs"),
        pytest.param(
            [found(1, Blame.STUCK), found(3, Blame.STUCK)],
            "Rank 1 of 4, Rank 3 of 4: they live, but none finishes its step",
            id="several-that-wait-for-each-other",
        ),
    ],
)
def test_of_several_lost_ranks_the_cause_is_named(findings: list[Finding], words: str) -> None:
    assert str(explain_loss(findings)) == words


def test_the_kernels_count_of_kills_is_read_where_there_is_one(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    assert count_memory_kills(events) == 0
    events.write_text("low 0\noom 3\noom_kill 2\n")
    assert count_memory_kills(events) == 2


def test_fewer_gpus_than_ranks_are_refused() -> None:
    check_gpus(2, 2)
    with pytest.raises(StartError, match="is 4, but torch sees 2 GPUs; give the container 4"):
        check_gpus(4, 2)


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        pytest.param(
            Topology(2),
            "2 does not divide the model (9 heads, 3 KV heads, intermediate size 1536); choose 1 "
            "or 3, or spread its layers by --pipeline-parallel-size",
            id="heads",
        ),
        pytest.param(
            Topology(9),
            "9 is more than 8, the GPUs of a node that are linked; choose 1 or 3, or spread its",
            id="more-than-a-node-has",
        ),
        pytest.param(
            Topology(1, 31),
            "--pipeline-parallel-size 31 is more than the 30 layers that the model has; choose at",
            id="layers",
        ),
    ],
)
def test_what_a_model_cannot_be_spread_over_is_refused(topology: Topology, words: str) -> None:
    with pytest.raises(StartError, match=re.escape(words)):
        check_topology(topology, SMOLLM2.config, "None")


def test_all_that_has_to_be_divided_is_named() -> None:
    mixture = replace(SMOLLM2.config, expert_intermediate_size=96, shared_intermediate_size=512)
    assert describe_divided(mixture, "INT8") == (
        "9 heads, 3 KV heads, intermediate size 1536, experts of 96, a shared expert of 512, "
        "weights that are quantised in groups of 32 or 64 or 128, which stay whole"
    )
