"""The examples of docs/sizing.md are what the code says, to the letter."""

from pathlib import Path
from typing import Any

import pytest

from forebay_operator.planning import plan
from gpu_sizing import sized
from observed_builder import (
    NOW,
    SMOLLM2,
    condition_of,
    gpu_node,
    known_model,
    observed,
    service,
)

PAGE = (Path(__file__).parents[3] / "docs/sizing.md").read_text(encoding="utf-8")

LARGE = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
SMALL = {"nvidia.com/gpu.product": "Tesla-T4"}
H100 = [gpu_node(f"h100-{number}", 81_559, 8, **LARGE) for number in (1, 2)]
T4 = [gpu_node(f"t4-{number}", 15_360, 4, **SMALL) for number in (1, 2, 3)]
TAINT = {"key": "team", "value": "b", "effect": "NoSchedule"}
TAINTED = [node | {"spec": {"taints": [TAINT]}} for node in H100]


@pytest.mark.parametrize(
    ("nodes", "spec"),
    [
        (H100 + T4, {}),
        (H100 + T4, {"vram": {"budget": "40Gi"}}),
        (T4, {}),
        (T4, {"vram": {"budget": "20Gi"}}),
        (T4, {"engine": {"tensorParallelSize": 8}}),
        (H100 + T4, {"vram": {"budget": "1Ti"}}),
        (H100, {"vram": {"budget": "40Gi"}, "engine": {"gpuMemoryUtilization": "0.90"}}),
        (TAINTED, {}),
    ],
)
def test_an_example_is_what_is_decided(nodes: list[dict[str, Any]], spec: dict[str, Any]) -> None:
    decided = sized(*nodes, **({"engine": {}} | spec))
    message = condition_of(decided, "Fits")["message"]
    assert f"\n> {message}\n" in PAGE, message


def test_the_cpus_example_is_what_is_decided() -> None:
    decided = plan(observed(service(status={"model": known_model(inspection=SMOLLM2)})), NOW)
    message = condition_of(decided, "Fits")["message"]
    assert f"\n> {message}\n" in PAGE, message
