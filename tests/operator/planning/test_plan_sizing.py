"""Sizing reads the nodes' GPUs, honours what the spec fixes, and says what would fit."""

from typing import Any

import pytest

from forebay_operator.planned import Plan
from forebay_operator.planning import plan
from gpu_sizing import ENGINE, MIB_16, MIB_80, URI, sized
from observed_builder import (
    NOW,
    SMOLLM2,
    child,
    condition_of,
    gpu_node,
    known_model,
    observed,
    says,
    service,
)


def container(decided: Plan) -> dict[str, Any]:
    deployment = child(decided, "Deployment")
    assert deployment is not None
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]["containers"][0]
    return found


def test_two_small_gpus_share_what_one_cannot_hold() -> None:
    decided = sized(gpu_node("a", MIB_16, 4))
    assert (decided.status or {})["plan"]["tensorParallelSize"] == 2
    assert "--tensor-parallel-size=2" in container(decided)["args"]
    assert container(decided)["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert says(decided, "Fits") == ("True", "Fits")


def test_the_flags_carry_the_numbers_of_the_plan() -> None:
    decided = sized(gpu_node("a", MIB_80, 1))
    told, arguments = (decided.status or {})["plan"], container(decided)["args"]
    assert f"--gpu-memory-utilization={told['gpuMemoryUtilization']}" in arguments
    assert f"--max-model-len={told['maxModelLen']}" in arguments
    assert f"--max-num-seqs={told['maxNumSeqs']}" in arguments
    assert f"--max-num-batched-tokens={told['maxNumBatchedTokens']}" in arguments
    assert "--device=cuda" in arguments and "--dtype=bfloat16" in arguments


@pytest.mark.parametrize(
    ("nodes", "spec", "reason", "sentence"),
    [
        (
            (gpu_node("a", MIB_16, 4),),
            {"vram": {"budget": "20Gi"}},
            "InsufficientMemory",
            "vram.budget",
        ),
        ((gpu_node("a", MIB_16, 1),), {}, "InsufficientMemory", "GiB"),
        ((), {}, "NoGPUNode", "No node offers nvidia.com/gpu; set spec.vram.gpuMemory"),
        (
            (gpu_node("a", MIB_80, 1),),
            {"podTemplate": {"nodeSelector": {"pool": "big"}}},
            "NoGPUNode",
            "1 node offers nvidia.com/gpu, but this service's pods may not run there: 1 is not "
            "picked by spec.podTemplate.nodeSelector",
        ),
        ((gpu_node("a", 0, 1),), {}, "GPUMemoryUnknown", "neither a label such as nvidia.com/gpu"),
        (
            (gpu_node("a", MIB_80, 2),),
            {"vram": {"gpuResource": "amd.com/gpu"}},
            "NoGPUNode",
            "No node offers amd.com/gpu, but nodes offer nvidia.com/gpu: set spec.vram.gpuResource",
        ),
        (
            (gpu_node("a", MIB_16, 4), gpu_node("b", MIB_80, 2)),
            {"vram": {"budget": "200Gi"}},
            "InvalidField",
            "vram.budget is 200.0 GiB, but a replica can have at most 160.0 GiB: 1 node with 2 "
            "GPUs of 80.0 GiB is the most that its pods may use; set at most 160Gi, or",
        ),
        (
            (gpu_node("a", MIB_80, 8),),
            {"vram": {"budget": "200Gi"}, "engine": ENGINE | {"tensorParallelSize": 2}},
            "InvalidField",
            "vram.budget is 200.0 GiB, but a replica can have at most 160.0 GiB",
        ),
        (
            (gpu_node("a", MIB_16, 2), gpu_node("b", MIB_80, 1)),
            {"engine": ENGINE | {"tensorParallelSize": 4}},
            "InvalidField",
            "engine.tensorParallelSize is 4, but a node has",
        ),
        (
            (gpu_node("a", MIB_80, 2),),
            {"vram": {"budget": "40Gi"}, "engine": ENGINE | {"gpuMemoryUtilization": "0.90"}},
            "InvalidField",
            "engine.gpuMemoryUtilization 0.90 takes 72.0 GiB of one GPU of 80.0 GiB, but "
            "vram.budget allows 40.0 GiB; leave one of the two out",
        ),
        (
            (gpu_node("a", MIB_16, 1), gpu_node("b", 20480, 1)),
            {},
            "InsufficientMemory",
            "19.0 GiB may be used there (95% of 20.0 GiB)",
        ),
    ],
    ids=[
        "a budget below the weights",
        "one GPU where two are needed",
        "no node has GPUs",
        "the selected nodes have none",
        "the nodes carry no label",
        "another vendor's GPUs are not there",
        "a budget that no node has",
        "a budget that so many GPUs do not have",
        "more GPUs than a node has",
        "a share that is more than the budget",
        "of two kinds the one that comes nearest is told",
    ],
)
def test_what_does_not_fit_starts_nothing(
    nodes: tuple[dict[str, Any], ...], spec: dict[str, Any], reason: str, sentence: str
) -> None:
    decided = sized(*nodes, **spec)
    assert says(decided, "Fits") == ("False", reason)
    assert sentence in condition_of(decided, "Fits")["message"]
    assert says(decided, "Ready") == ("False", reason)
    assert child(decided, "Deployment") is None and child(decided, "ControllerRevision") is None


def test_a_budget_of_a_gpus_nominal_size_means_all_of_it() -> None:
    decided = sized(gpu_node("a", 81_559, 1), vram={"budget": "80Gi"})
    assert says(decided, "Fits") == ("True", "Fits")


def test_without_the_right_to_read_nodes_the_memory_must_be_said() -> None:
    assert "may not read nodes" in condition_of(sized(readable=False), "Fits")["message"]
    decided = sized(readable=False, vram={"gpuMemory": "16Gi"})
    assert (decided.status or {})["plan"]["tensorParallelSize"] == 2


def test_the_specs_gpu_memory_wins_over_the_labels() -> None:
    decided = sized(gpu_node("a", MIB_16, 4), vram={"gpuMemory": "80Gi"})
    assert (decided.status or {})["plan"]["tensorParallelSize"] == 1


def test_new_nodes_do_not_plan_anew_what_fits() -> None:
    before = sized(gpu_node("a", MIB_16, 4))
    revision = child(before, "ControllerRevision")
    raw = service(status=before.status, device="GPU", model={"uri": URI}, engine=ENGINE)
    later = plan(observed(raw, revisions=(revision,), nodes=(gpu_node("b", MIB_80, 8),)), NOW)
    assert child(later, "ControllerRevision") == revision
    assert says(later, "Fits") == ("True", "Fits")


def on_cpu(**spec: Any) -> Plan:
    status = {"model": known_model(inspection=SMOLLM2)}
    return plan(observed(service(status=status, **spec)), NOW)


def memory(decided: Plan) -> tuple[str, str]:
    resources = container(decided)["resources"]
    return resources["limits"]["memory"], resources["requests"]["memory"]


@pytest.mark.parametrize(
    ("spec", "limit", "request_"),
    [
        ({"vram": {"budget": "4Gi"}}, "4Gi", "4Gi"),
        ({"podTemplate": {"resources": {"limits": {"memory": "6Gi"}}}}, "6Gi", "6Gi"),
        (
            {
                "vram": {"budget": "4Gi"},
                "podTemplate": {"resources": {"limits": {"memory": "6Gi"}}},
            },
            "6Gi",
            "6Gi",
        ),
        (
            {
                "vram": {"budget": "4Gi"},
                "podTemplate": {"resources": {"requests": {"memory": "1Gi"}}},
            },
            "4Gi",
            "1Gi",
        ),
    ],
    ids=[
        "the budget is the limit",
        "the limit is the budget",
        "with both, the limit is the pod's",
        "a smaller request is the user's choice",
    ],
)
def test_on_a_cpu_memory_is_limited_to_the_plan(
    spec: dict[str, Any], limit: str, request_: str
) -> None:
    assert memory(on_cpu(**spec)) == (limit, request_)


@pytest.mark.parametrize("vram", [{}, {"budget": "4Gi"}], ids=["no budget", "a larger budget"])
def test_a_limit_that_is_too_small_is_what_is_named(vram: dict[str, Any]) -> None:
    limits = {"resources": {"limits": {"memory": "100Mi"}}}
    decided = on_cpu(vram=vram, podTemplate=limits)
    assert says(decided, "Fits") == ("False", "InsufficientMemory")
    message = condition_of(decided, "Fits")["message"]
    assert "podTemplate.resources.limits.memory allows 100 MiB" in message
    assert "vram.budget" not in message


def test_on_a_cpu_without_a_budget_the_need_is_the_limit() -> None:
    decided = on_cpu()
    assert memory(decided) == ((decided.status or {})["plan"]["budget"],) * 2
    assert "--device=cpu" in container(decided)["args"]
    assert not [one for one in container(decided)["args"] if "gpu-memory" in one]
    assert container(decided)["resources"]["requests"]["cpu"] == "100m"
