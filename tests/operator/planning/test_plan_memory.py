"""Planned and measured memory stand side by side, and a condition tells when they part."""

from typing import Any

import pytest

from forebay_budget.quantity import parse_quantity, to_quantity
from forebay_operator.observed import MEMORY_TERMS, PodLoad
from forebay_operator.planned import Plan
from forebay_operator.planning.memory_report import judge_memory
from observed_builder import condition_of, says, service
from toy_cluster import ToyCluster

MIB, GIB = 1024**2, 1024**3
GPU: dict[str, Any] = {"device": "GPU", "vram": {"gpuMemory": "80Gi"}}


def report(planned_mib: dict[str, int], measured_mib: dict[str, int]) -> dict[str, Any]:
    """A status.memory of one GPU."""
    usual = {"weights": 10_240, "kvCache": 10_240, "activation": 512, "overhead": 1024}
    planned = usual | planned_mib
    measured = planned | measured_mib
    terms = [
        {
            "name": term,
            "planned": to_quantity(planned[term] * MIB),
            "measured": to_quantity(measured[term] * MIB),
        }
        for term in MEMORY_TERMS
    ]
    return {"terms": terms}


@pytest.mark.parametrize(
    ("device", "planned", "measured", "reason", "words"),
    [
        ("GPU", {}, {}, "AsPlanned", "21.5 GiB, and 21.5 GiB were planned."),
        ("GPU", {}, {"weights": 10_240 + 256}, "AsPlanned", "(+1 %)."),
        (
            "GPU",
            {},
            {"weights": 10_240 + 257},
            "TermsDiffer",
            "weights 10.3 GiB instead of 10.0 GiB",
        ),
        ("GPU", {"kvCache": 122_880}, {"kvCache": 122_880 + 1024}, "AsPlanned", ""),
        ("GPU", {}, {"activation": 2048}, "MoreThanPlanned", "(+7 %): activation 2.0 GiB instead"),
        ("GPU", {}, {"activation": 2048}, "MoreThanPlanned", "spec.engine.gpuMemoryUtilization"),
        ("GPU", {}, {"kvCache": 8_192}, "LessThanPlanned", "(-9 %): kvCache 8.0 GiB instead of"),
        ("GPU", {}, {"kvCache": 8_192}, "LessThanPlanned", "raise spec.engine.maxNumSeqs"),
        ("CPU", {}, {"kvCache": 8_192}, "AsPlanned", "A pod was measured to hold 19.5 GiB"),
        ("CPU", {}, {"activation": 2048}, "MoreThanPlanned", "raise spec.vram.budget"),
        ("CPU", {}, {"activation": 1024, "overhead": 512}, "AsPlanned", ""),
    ],
    ids=[
        "exactly",
        "by 256 MiB in one term",
        "by more than 256 MiB in one term",
        "by less than a plan's rounding in a large term",
        "by more than 5 % in total",
        "above, with the knobs",
        "by more than 5 % below",
        "below, with the knobs",
        "a CPU's plan is a limit, so less is as planned",
        "more is not",
        "nor are terms that make up for each other",
    ],
)
def test_measured_memory_is_compared_with_the_plan(
    device: str, planned: dict[str, int], measured: dict[str, int], reason: str, words: str
) -> None:
    verdict = judge_memory(report(planned, measured), device)
    assert (verdict.is_as_planned, verdict.reason) == (reason == "AsPlanned", reason)
    assert words in verdict.message


def measured(cluster: ToyCluster, index: int = 0, device: str = "cuda", **extra: int) -> None:
    """Have a pod say what was planned, and `extra` bytes more of a term."""
    plan = cluster.service["status"]["plan"]
    terms = {term: parse_quantity(plan[term]) + extra.get(term, 0) for term in MEMORY_TERMS}
    uid = cluster.pods[index]["metadata"]["uid"]
    cluster.loads = {**cluster.loads, uid: PodLoad(True, device=device, memory_bytes=terms)}


def settled_on_gpus(num_replicas: int = 1) -> ToyCluster:
    cluster = ToyCluster(service(**GPU, replicas=num_replicas))
    cluster.settle()
    return cluster


def total_of(decided: Plan) -> int:
    return parse_quantity((decided.status or {})["memory"]["measured"])


def test_both_stand_side_by_side_once_a_pod_has_told() -> None:
    cluster = settled_on_gpus()
    assert "memory" not in cluster.service["status"]
    measured(cluster, weights=GIB)
    decided = cluster.settle()
    memory, plan = (decided.status or {})["memory"], (decided.status or {})["plan"]
    assert [one["name"] for one in memory["terms"]] == list(MEMORY_TERMS)
    assert all(one["planned"] == plan[one["name"]] for one in memory["terms"])
    assert total_of(decided) > parse_quantity(memory["planned"])
    assert says(decided, "MemoryAsPlanned") == ("False", "TermsDiffer")
    assert says(decided, "Ready") == ("True", "AllReplicasReady")


def test_of_several_pods_the_one_that_takes_most_is_shown() -> None:
    cluster = settled_on_gpus(3)
    for index, extra in enumerate((0, 2 * GIB, GIB)):
        measured(cluster, index, activation=extra)
    activation = (cluster.settle().status or {})["memory"]["terms"][2]
    spread = parse_quantity(activation["measured"]) - parse_quantity(activation["planned"])
    assert abs(spread - 2 * GIB) < 100 * MIB


def test_a_few_bytes_of_jitter_write_nothing() -> None:
    cluster = settled_on_gpus()
    measured(cluster)
    cluster.settle()
    before = cluster.service["status"]
    for jitter in (4096, -4096, 8 * MIB):
        cluster.step(40)
        measured(cluster, overhead=jitter)
        assert cluster.decide().status == before


def test_other_numbers_are_written_at_most_every_thirty_seconds() -> None:
    cluster = settled_on_gpus()
    measured(cluster)
    before = total_of(cluster.settle())
    cluster.step(31)
    cluster.carry_out(cluster.decide())
    measured(cluster, overhead=GIB)
    cluster.step(20)
    decided = cluster.decide()
    assert total_of(decided) == before
    assert decided.look_again_seconds == 10
    cluster.step(11)
    assert total_of(cluster.decide()) > before


@pytest.mark.parametrize("silence", ["silent", "gone", "old"])
def test_what_was_told_stands_while_nothing_is_heard(silence: str) -> None:
    cluster = settled_on_gpus()
    measured(cluster)
    before = condition_of(cluster.settle(), "MemoryAsPlanned")
    uid = cluster.pods[0]["metadata"]["uid"]
    said = {"silent": {uid: PodLoad(False)}, "gone": {}, "old": {uid: PodLoad(True)}}
    cluster.loads = dict(said[silence])
    cluster.step(40)
    assert condition_of(cluster.settle(), "MemoryAsPlanned") == before


def test_a_new_plan_waits_for_its_own_measurement() -> None:
    cluster = settled_on_gpus()
    measured(cluster)
    cluster.settle()
    cluster.change(vram={"gpuMemory": "40Gi"})
    decided = cluster.settle()
    assert "memory" not in (decided.status or {})
    assert not condition_of(decided, "MemoryAsPlanned")


def test_a_pod_on_the_wrong_device_tells_nothing_about_the_plan() -> None:
    cluster = settled_on_gpus()
    measured(cluster, device="cpu")
    decided = cluster.settle()
    assert says(decided, "Ready") == ("False", "RunsOnCPU")
    assert not condition_of(decided, "MemoryAsPlanned")
