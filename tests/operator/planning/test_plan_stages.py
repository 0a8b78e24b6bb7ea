"""Where no tensor parallelism fits, the layers go over several groups of GPUs."""

from typing import Any

import pytest

from forebay_operator.planned import Plan
from gpu_sizing import ENGINE, sized, told
from observed_builder import child, condition_of, gpu_node, says

MIB_12, MIB_80 = 12 * 1024, 80 * 1024


def container(decided: Plan) -> dict[str, Any]:
    deployment = child(decided, "Deployment")
    assert deployment is not None
    pod = deployment["spec"]["template"]["spec"]
    found: dict[str, Any] = pod["containers"][0] | {"volumes": pod["volumes"]}
    return found


def test_three_gpus_that_do_not_divide_the_model_hold_its_layers_in_turn() -> None:
    decided = sized(gpu_node("a", MIB_12, 3))
    plan = told(decided)
    assert (plan["tensorParallelSize"], plan["pipelineParallelSize"]) == (1, 3)
    assert "the layers in 3 stages, because no number of GPUs" in plan["explanation"]
    pod = container(decided)
    assert {"--tensor-parallel-size=1", "--pipeline-parallel-size=3"} <= set(pod["args"])
    assert pod["resources"]["limits"] == {"nvidia.com/gpu": "3"}
    assert {"name": "forebay-shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]


def test_a_model_that_divides_is_not_cut_into_stages() -> None:
    plan = told(sized(gpu_node("a", MIB_12, 4)))
    assert plan["tensorParallelSize"] == 4
    assert "pipelineParallelSize" not in plan
    assert not any("pipeline" in one for one in container(sized(gpu_node("a", MIB_12, 4)))["args"])


def test_both_may_be_asked_for() -> None:
    asked = ENGINE | {"tensorParallelSize": 2, "pipelineParallelSize": 2}
    decided = sized(gpu_node("a", MIB_80, 4), engine=asked)
    plan = told(decided)
    assert (plan["tensorParallelSize"], plan["pipelineParallelSize"]) == (2, 2)
    assert "the layers in 2 stages of 2 GPUs, as engine.pipelineParallelSize" in plan["explanation"]
    assert container(decided)["resources"]["limits"] == {"nvidia.com/gpu": "4"}


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        pytest.param(
            {"pipelineParallelSize": 4},
            "engine.pipelineParallelSize is 4, but a node has 2 GPUs at most; set at most 2.",
            id="more stages than GPUs",
        ),
        pytest.param(
            {"tensorParallelSize": 2, "pipelineParallelSize": 2},
            "engine.pipelineParallelSize is 2, but a node has 2 GPUs at most; set at most 1, "
            "as each stage takes 2.",
            id="more groups than GPUs",
        ),
    ],
)
def test_stages_that_no_node_has_are_refused(engine: dict[str, int], sentence: str) -> None:
    decided = sized(gpu_node("a", MIB_80, 2), engine=ENGINE | engine)
    assert says(decided, "Fits") == ("False", "InvalidField")
    assert sentence in condition_of(decided, "Fits")["message"]
