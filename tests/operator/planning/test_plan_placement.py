"""Nodes count where the service's pods may run: selectors, affinity, taints, cordons, readiness."""

from typing import Any

import pytest

from gpu_sizing import MIB_16, MIB_80, gpus, sized
from observed_builder import child, condition, condition_of, gpu_node, says

NVIDIA = "nvidia.com/gpu"


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("operator", "values", "admits"),
    [
        ("In", ("7",), True),
        ("In", ("8",), False),
        ("NotIn", ("8",), True),
        ("NotIn", ("7",), False),
        ("Exists", (), True),
        ("DoesNotExist", (), False),
        ("Gt", ("6",), True),
        ("Gt", ("7",), False),
        ("Lt", ("8",), True),
        ("Lt", ("7",), False),
        ("Gt", ("many",), False),
    ],
)
def test_the_users_affinity_decides_which_nodes_count(
    operator: str, values: tuple[str, ...], admits: bool
) -> None:
    node = gpu_node("a", MIB_80, 1, rank="7")
    template = {"affinity": affinity(expression("rank", operator, *values))}
    decided = sized(node, podTemplate=template)
    assert says(decided, "Fits")[0] == ("True" if admits else "False")


@pytest.mark.parametrize(
    ("terms", "admits"),
    [
        ((expression("no", "Exists"), expression("rank", "Exists")), True),
        (({},), False),
        (({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]},), True),
        (({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]},), False),
    ],
    ids=["one of two terms", "an empty term", "the node's name", "another's name"],
)
def test_one_term_of_an_affinity_is_enough(terms: tuple[dict[str, Any], ...], admits: bool) -> None:
    decided = sized(gpu_node("a", MIB_80, 1, rank="7"), podTemplate={"affinity": affinity(*terms)})
    assert says(decided, "Fits")[0] == ("True" if admits else "False")


TEAM = {"key": "team", "value": "b", "effect": "NoSchedule"}
NOT_READY = {
    "status": {"allocatable": {NVIDIA: "1"}, "conditions": [condition("Ready", "Unknown")]}
}


@pytest.mark.parametrize(
    ("change", "tolerations", "sentence"),
    [
        ({"spec": {"unschedulable": True}}, [], "1 is cordoned"),
        ({"spec": {"unschedulable": True}}, [{"operator": "Exists"}], ""),
        (NOT_READY, [], "1 is not ready"),
        ({"spec": {"taints": [TEAM]}}, [], "1 is tainted team=b:NoSchedule, which"),
        ({"spec": {"taints": [TEAM]}}, [{"key": "team", "value": "b"}], ""),
        ({"spec": {"taints": [TEAM]}}, [{"key": "team", "value": "c"}], "1 is tainted"),
        ({"spec": {"taints": [TEAM]}}, [{"key": "team", "operator": "Exists"}], ""),
        (
            {"spec": {"taints": [TEAM]}},
            [{"key": "team", "operator": "Exists", "effect": "NoExecute"}],
            "1 is tainted",
        ),
        ({"spec": {"taints": [TEAM | {"effect": "PreferNoSchedule"}]}}, [], ""),
        ({"spec": {"taints": [TEAM | {"key": NVIDIA}]}}, [], ""),
        (
            {
                "spec": {
                    "taints": [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]
                }
            },
            [],
            "1 is tainted node.kubernetes.io/disk-pressure by Kubernetes",
        ),
    ],
    ids=[
        "cordoned",
        "cordoned, and tolerated",
        "not ready",
        "tainted",
        "tainted, and tolerated",
        "tainted, and another value is tolerated",
        "tainted, and any value is tolerated",
        "tainted, and another effect is tolerated",
        "a taint that only advises",
        "kept for those who ask for GPUs",
        "short of disk",
    ],
)
def test_a_node_counts_only_if_pods_may_run_there(
    change: dict[str, Any], tolerations: list[dict[str, Any]], sentence: str
) -> None:
    node = gpu_node("a", MIB_80, 1) | change
    decided = sized(node, podTemplate={"tolerations": tolerations})
    if not sentence:
        assert gpus(decided) == (1, "80Gi")
        return
    assert says(decided, "Fits") == ("False", "NoGPUNode")
    message = condition_of(decided, "Fits")["message"]
    assert (
        f"1 node offers nvidia.com/gpu, but this service's pods may not run there: {sentence}"
        in message
    )  # noqa: E501


def test_pods_tolerate_the_taint_that_keeps_nodes_for_those_who_ask_for_gpus() -> None:
    deployment = child(sized(gpu_node("a", MIB_80, 1)), "Deployment")
    assert deployment is not None
    tolerations = deployment["spec"]["template"]["spec"]["tolerations"]
    assert tolerations == [{"key": "nvidia.com/gpu", "operator": "Exists"}]


def test_a_misfit_names_the_nodes_that_count_and_those_that_do_not() -> None:
    cordoned = gpu_node("b", MIB_80, 1) | {"spec": {"unschedulable": True}}
    decided = sized(gpu_node("a", MIB_16, 1), cordoned)
    assert says(decided, "Fits") == ("False", "InsufficientMemory")
    message = condition_of(decided, "Fits")["message"]
    assert "Its pods may use 1 node with 1 GPU of 16.0 GiB; not counted: 1 is cordoned." in message


def test_a_node_that_comes_back_is_planned_for() -> None:
    away = gpu_node("a", MIB_80, 1) | NOT_READY
    before = sized(away)
    assert says(before, "Fits")[0] == "False"
    assert gpus(sized(gpu_node("a", MIB_80, 1))) == (1, "80Gi")
