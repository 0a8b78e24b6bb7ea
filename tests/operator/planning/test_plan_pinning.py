"""In a mixed pool the plan says which nodes it is for, and its pods can go to no other."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_operator.planned import Plan
from forebay_operator.planning import plan
from forebay_operator.planning.nodes.selector import matches_any, matches_term
from gpu_sizing import ENGINE, MIB_16, MIB_80, URI, gpus, sized, told
from observed_builder import NOW, child, condition_of, gpu_node, labelled_node, observed, says
from observed_builder import service as build

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
T4 = {"nvidia.com/gpu.product": "Tesla-T4"}


def required_terms(decided: Plan) -> list[dict[str, Any]]:
    """The node selector terms of the Deployment's pods."""
    deployment = child(decided, "Deployment")
    assert deployment is not None
    affinity = deployment["spec"]["template"]["spec"].get("affinity", {})
    required = affinity.get("nodeAffinity", {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution", {}
    )
    terms: list[dict[str, Any]] = required.get("nodeSelectorTerms", [])
    return terms


def find_takers(decided: Plan, nodes: Iterable[dict[str, Any]]) -> list[str]:
    """The nodes that match the pin and have as many GPUs as a pod asks for."""
    terms, num_gpus = required_terms(decided), told(decided)["tensorParallelSize"]
    return [
        node["metadata"]["name"]
        for node in nodes
        if matches_any(terms, node)
        and max(map(int, node["status"]["allocatable"].values())) >= num_gpus
    ]


def slice_of(node: str, memory: str) -> dict[str, Any]:
    devices = [{"capacity": {"memory": {"value": memory}}}]
    return {
        "metadata": {"name": node},
        "spec": {"driver": "gpu.nvidia.com", "nodeName": node, "devices": devices},
    }


def test_pods_ask_for_the_memory_that_the_plan_needs() -> None:
    decided = sized(gpu_node("a", MIB_80, 1))
    (term,) = required_terms(decided)
    (asked,) = term["matchExpressions"]
    assert (asked["key"], asked["operator"]) == ("nvidia.com/gpu.memory", "Gt")
    assert MIB_80 * 0.95 < int(asked["values"][0]) < MIB_80
    assert told(decided)["nodeSelector"] == f"nvidia.com/gpu.memory>{asked['values'][0]}"


def test_a_budget_below_the_gpu_lets_smaller_gpus_do() -> None:
    decided = sized(gpu_node("a", MIB_80, 1), vram={"budget": "40Gi"})
    ((asked,),) = [term["matchExpressions"] for term in required_terms(decided)]
    assert 40 * 1024 < int(asked["values"][0]) < 42 * 1024


def amd(name: str, vram: str) -> dict[str, Any]:
    return labelled_node(name, {"amd.com/gpu": 1}, {"amd.com/gpu.vram": vram})


def counted(name: str, vram: str) -> dict[str, Any]:
    return labelled_node(name, {"amd.com/gpu": 1}, {f"beta.amd.com/gpu.vram.{vram}": "1"})


SHARED = {"nvidia.com/gpu.replicas": "8", "nvidia.com/gpu.product": "NVIDIA-H100-SHARED"}
AMD = {"vram": {"gpuResource": "amd.com/gpu"}}


@pytest.mark.parametrize(
    ("nodes", "spec", "names", "selector"),
    [
        (
            (gpu_node("small", MIB_16, 1), gpu_node("big", MIB_80, 8)),
            {},
            ["big"],
            "nvidia.com/gpu.memory>80229",
        ),
        (
            (gpu_node("small", MIB_16, 4), gpu_node("big", MIB_80, 1)),
            {"engine": ENGINE | {"tensorParallelSize": 2}},
            ["small"],
            "nvidia.com/gpu.memory>16045",
        ),
        (
            (gpu_node("small", MIB_16, 4), gpu_node("big", MIB_80, 1)),
            {},
            ["big"],
            "nvidia.com/gpu.memory>80229",
        ),
        (
            (gpu_node("small", 24_576, 1), gpu_node("big", MIB_80, 1)),
            {"engine": {}},
            ["big"],
            "nvidia.com/gpu.memory>80229",
        ),
        (
            (gpu_node("small", 40_960, 1), gpu_node("big", MIB_80, 1)),
            {},
            ["big", "small"],
            "nvidia.com/gpu.memory>40114",
        ),
        (
            (gpu_node("shared", MIB_80, 8, **SHARED), gpu_node("whole", MIB_80, 8, **H100)),
            {},
            ["whole"],
            "nvidia.com/gpu.memory>80229,nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3",
        ),
        (
            (gpu_node("unknown", 0, 8), gpu_node("big", MIB_80, 8)),
            {},
            ["big"],
            "nvidia.com/gpu.memory>80229",
        ),
        ((amd("small", "16G"), amd("big", "192G")), AMD, ["big"], "amd.com/gpu.vram=192G"),
        ((amd("one", "192G"), amd("other", "192G")), AMD, ["one", "other"], None),
        (
            (amd("small", "16G"), amd("big", "64G"), amd("bigger", "192G")),
            AMD,
            ["big", "bigger"],
            "amd.com/gpu.vram in (192G,64G)",
        ),
        (
            (counted("small", "16G"), counted("big", "64G"), counted("bigger", "192G")),
            AMD,
            ["big", "bigger"],
            "beta.amd.com/gpu.vram.192G or beta.amd.com/gpu.vram.64G",
        ),
        (
            (
                gpu_node("small", MIB_16, 1),
                gpu_node("big", MIB_80, 1),
                labelled_node(
                    "new", {"nvidia.com/gpu": 1}, {"eks.amazonaws.com/instance-gpu-memory": "81920"}
                ),
            ),
            {},
            ["big", "new"],
            "eks.amazonaws.com/instance-gpu-memory>80229 or nvidia.com/gpu.memory>80229",
        ),
    ],
    ids=[
        "the small node has too few GPUs",
        "the big node has too few for what was asked",
        "one big GPU before two small ones",
        "one that holds long requests before one that does not",
        "the smaller of two that will do, and all that have as much",
        "shared GPUs of the same size",
        "a node whose memory is not known",
        "AMD",
        "AMD: all alike need no pin",
        "AMD: whichever are large enough",
        "AMD: by the labels that count",
        "labels of two sources",
    ],
)
def test_the_plan_names_its_nodes_and_pins_its_pods_to_them(
    nodes: tuple[dict[str, Any], ...], spec: dict[str, Any], names: list[str], selector: str | None
) -> None:
    decided = sized(*nodes, **spec)
    assert told(decided)["nodes"] == names
    assert told(decided).get("nodeSelector") == selector
    assert selector is None or sorted(find_takers(decided, nodes)) == names


def test_nodes_that_only_slices_describe_are_pinned_by_their_names() -> None:
    nodes = [labelled_node(name, {"nvidia.com/gpu": 1}, {}) for name in ("a", "b", "c")]
    slices = (slice_of("a", "80Gi"), slice_of("b", "16Gi"), slice_of("c", "80Gi"))
    decided = sized(*nodes, slices=slices)
    assert told(decided)["nodeSelector"] == "kubernetes.io/hostname in (a,c)"


def test_a_term_of_the_users_keeps_what_it_asked_for() -> None:
    wanted = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
        for zone in ("east", "west")
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": wanted}}
    template = {"affinity": {"nodeAffinity": required, "podAntiAffinity": {}}}
    decided = sized(gpu_node("a", MIB_80, 1, zone="west"), podTemplate=template)
    terms = required_terms(decided)
    assert [term["matchExpressions"][0]["values"] for term in terms] == [["east"], ["west"]]
    assert not matches_any(terms, gpu_node("b", MIB_80, 1, zone="north"))
    assert not matches_any(terms, gpu_node("c", MIB_16, 1, zone="west"))
    assert matches_any(terms, gpu_node("a", MIB_80, 1, zone="west"))


def test_the_explanation_names_the_nodes_that_will_do_and_those_that_will_not() -> None:
    large = [gpu_node(name, 81559, 8, **H100) for name in ("a", "b")]
    decided = sized(*large, gpu_node("c", 15360, 1, **T4))
    assert told(decided)["gpuProducts"] == ["NVIDIA-H100-80GB-HBM3"]
    assert told(decided)["explanation"].endswith(
        "Nodes that will do: 2 nodes with 8 NVIDIA-H100-80GB-HBM3 of 79.6 GiB; "
        "1 node with 1 Tesla-T4 of 15.0 GiB will not do."
    )
    assert condition_of(decided, "Fits")["message"] == told(decided)["explanation"]


def test_new_nodes_do_not_plan_anew_what_fits() -> None:
    before = sized(gpu_node("a", MIB_16, 4))
    revision = child(before, "ControllerRevision")
    raw = build(status=before.status, device="GPU", model={"uri": URI}, engine=ENGINE)
    bigger = (gpu_node("a", MIB_16, 4), gpu_node("b", MIB_80, 8))
    later = plan(observed(raw, revisions=(revision,), nodes=bigger), NOW)
    assert child(later, "ControllerRevision") == revision
    assert says(later, "Fits") == ("True", "Fits")


@pytest.mark.parametrize(
    ("nodes", "memory", "expected", "pinned"),
    [
        ((), "80Gi", (1, "80Gi"), False),
        ((gpu_node("a", MIB_16, 4),), "80Gi", (1, "80Gi"), False),
        ((gpu_node("a", 0, 4),), "16Gi", (2, "16Gi"), False),
        ((gpu_node("a", 81559, 1),), "80Gi", (1, "80Gi"), False),
        ((gpu_node("a", MIB_16, 8), gpu_node("b", 81559, 1)), "80Gi", (1, "80Gi"), True),
        ((gpu_node("a", MIB_16, 8), gpu_node("b", 0, 1)), "80Gi", (1, "80Gi"), True),
    ],
    ids=[
        "nodes come later",
        "the user knows better",
        "the label is missing",
        "the size is a little less than its name",
        "smaller GPUs are left out",
        "unknown ones are believed, smaller are left out",
    ],
)
def test_the_specs_gpu_memory_wins_over_the_nodes(
    nodes: tuple[dict[str, Any], ...], memory: str, expected: tuple[int, str], pinned: bool
) -> None:
    decided = sized(*nodes, vram={"gpuMemory": memory})
    assert gpus(decided) == expected
    terms = required_terms(decided)
    assert bool(terms) is pinned
    assert [matches_term(term, nodes[1]) for term in terms] == [True] * len(terms)
    assert not any(matches_term(term, nodes[0]) for term in terms)


@st.composite
def pools(draw: st.DrawFn) -> list[dict[str, Any]]:
    nodes = []
    for number in range(draw(st.integers(1, 6))):
        memory = draw(st.sampled_from([0, MIB_16, 24_576, 40_960, 81_559, MIB_80]))
        labels = draw(st.sampled_from([{}, H100, T4, SHARED, {"nvidia.com/gpu.replicas": "2"}]))
        nodes.append(gpu_node(f"n{number}", memory, draw(st.sampled_from([1, 2, 8])), **labels))
    return nodes


@given(pools())
def test_whatever_the_pool_pods_can_go_where_they_were_planned_for_and_fit_wherever_they_can_go(
    nodes: list[dict[str, Any]],
) -> None:
    decided = sized(*nodes)
    if says(decided, "Fits")[0] == "False":
        return
    fixed = ENGINE | {"tensorParallelSize": told(decided)["tensorParallelSize"]}
    takers = find_takers(decided, nodes)
    assert takers == told(decided)["nodes"]
    alone = [sized(node, engine=fixed) for node in nodes if node["metadata"]["name"] in takers]
    assert {says(one, "Fits")[0] for one in alone} == {"True"}
