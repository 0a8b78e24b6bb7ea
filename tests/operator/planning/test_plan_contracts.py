"""What planning writes is what the schema stores and the runtime takes."""

import argparse
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from forebay_operator.observed import MEMORY_TERMS, PodLoad
from forebay_operator.planning import plan
from forebay_operator.planning.quota.ledger import plan_quotas
from forebay_runtime.cli import main
from forebay_runtime.serve_flags import add_flags
from forebay_runtime.serve_settings import to_engine_config
from observed_builder import (
    LLAMA_13B,
    NOW,
    child,
    gpu_node,
    known_model,
    leaving,
    load,
    observed,
    service,
    terminated,
)
from toy_cluster import settled

CRD = Path(__file__).parents[3] / "crds/inferenceservices.yaml"
TYPES = {"string": str, "integer": int, "boolean": bool}


def read_schema(path: Path) -> dict[str, Any]:
    """A kind's own schema."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    found: dict[str, Any] = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """The InferenceService's."""
    return read_schema(CRD)


def unknown_to(schema: dict[str, Any], value: Any, path: str) -> list[str]:
    """The paths of a value that a schema would drop or refuse."""
    if schema["type"] == "object":
        properties = schema.get("properties", {})
        lost = [f"{path}.{name}" for name in value if name not in properties]
        known = [name for name in value if name in properties]
        return lost + [
            one
            for name in known
            for one in unknown_to(properties[name], value[name], f"{path}.{name}")
        ]
    if schema["type"] == "array":
        return [one for entry in value for one in unknown_to(schema["items"], entry, f"{path}[]")]
    return [] if type(value) is TYPES[schema["type"]] else [path]


def test_the_schema_keeps_every_field_of_a_scaling_and_draining_status(
    schema: dict[str, Any],
) -> None:
    cluster = settled(scaling={"maxReplicas": 2, "minReplicas": 2})
    cluster.pods[1] = leaving(cluster.pods[1])
    cluster.loads = {one["metadata"]["uid"]: load(1, 9) for one in cluster.pods}
    status = dict(cluster.decide().status or {})
    assert {"scaling", "draining", "plan", "model"} <= status.keys()
    assert unknown_to(schema["properties"]["status"], status, "status") == []


def test_the_schema_keeps_every_field_of_a_gpu_plan_and_a_failure(schema: dict[str, Any]) -> None:
    known = known_model("hf://org/name", LLAMA_13B) | {"secretName": "hf"}
    model = {"uri": "hf://org/name", "secretName": "hf"}
    raw = service(device="GPU", model=model, status={"model": known})
    on_gpus = plan(observed(raw, nodes=(gpu_node("a", 81920, 8),)), NOW).status
    cluster = settled()
    killed = terminated(137, reason="OOMKilled")
    cluster.befall({"containerStatuses": [{"name": "runtime", "state": killed}]})
    for status in (on_gpus, cluster.decide().status):
        assert unknown_to(schema["properties"]["status"], status, "status") == []


def test_the_schemas_keep_every_field_of_a_budget_and_of_measured_memory(
    schema: dict[str, Any],
) -> None:
    cluster = settled(device="GPU", vram={"gpuMemory": "80Gi"})
    uid = cluster.pods[0]["metadata"]["uid"]
    cluster.loads = {uid: PodLoad(True, memory_bytes=dict.fromkeys(MEMORY_TERMS, 2**30))}
    status = cluster.settle().status or {}
    assert {"memory", "vram"} <= status.keys()
    assert unknown_to(schema["properties"]["status"], status, "status") == []
    quota = {"metadata": {"name": "gpus", "generation": 1}, "spec": {"budget": "1Gi"}}
    (counted,) = plan_quotas((quota,), (cluster.service,), {}, NOW)
    ledger = read_schema(CRD.with_name("vramquotas.yaml"))["properties"]["status"]
    assert len(counted["services"]) == 1
    assert unknown_to(ledger, counted, "status") == []


def planned_arguments(device: str = "GPU", quantization: str = "Auto", **engine: str) -> list[str]:
    """What planning starts a pod with; nothing where it starts none."""
    raw = service(
        device=device,
        model={"uri": "hf://org/name", "quantization": quantization},
        engine=engine,
        status={"model": known_model("hf://org/name", LLAMA_13B)},
    )
    deployment = child(plan(observed(raw, nodes=(gpu_node("a", 81920, 8),)), NOW), "Deployment")
    if deployment is None:
        return []
    arguments: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return arguments


def planned_flags() -> list[str]:
    """Every flag that planning passes."""
    return [one.partition("=")[0] for one in planned_arguments() if one.startswith("--")]


def test_the_runtime_takes_every_number_format_that_a_plan_asks_for(schema: dict[str, Any]) -> None:
    spec = schema["properties"]["spec"]["properties"]
    engine = spec["engine"]["properties"]
    formats = product(
        ("GPU", "CPU"),
        spec["model"]["properties"]["quantization"]["enum"],
        engine["dtype"]["enum"],
        engine["kvCacheDtype"]["enum"],
    )
    parser = argparse.ArgumentParser()
    add_flags(parser)
    served = set()
    for device, quantization, dtype, kv_cache_dtype in formats:
        arguments = planned_arguments(
            device, quantization, dtype=dtype, kvCacheDtype=kv_cache_dtype
        )
        if arguments:
            config = to_engine_config(parser.parse_args(arguments[1:]))
            served.add((device, config.quantization, config.dtype, config.kv_cache_dtype))
    # A GPU's attention mixes no two floating dtypes, so their pods are never started.
    # Auto is told to a CPU's as it is, whose runtime knows its processor.
    assert len(served) == 3 * (4 * 6 + 3 * 4)


def test_the_runtime_knows_every_planned_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    help_text = capsys.readouterr().out
    assert [flag for flag in planned_flags() if flag not in help_text] == []


def test_extra_arguments_cannot_repeat_a_planned_flag(schema: dict[str, Any]) -> None:
    spec = schema["properties"]["spec"]["properties"]
    rules = spec["engine"]["properties"]["extraArgs"]["x-kubernetes-validations"]
    text = " ".join(rule["rule"] for rule in rules)
    assert [flag for flag in planned_flags() if f"'{flag}'" not in text] == []
