"""An InferenceService is read with its defaults; what cannot be meant is told with its field."""

import re
from decimal import Decimal
from typing import Any

import pytest

from forebay_operator.planning import plan
from forebay_operator.service import (
    Drain,
    EngineOptions,
    Model,
    PodTemplate,
    Rollout,
    Scaling,
    Service,
    Vram,
)
from forebay_operator.service_parser import SpecError, parse_service
from observed_builder import (
    GIB,
    NOW,
    condition,
    condition_of,
    leaving,
    observed,
    says,
    service,
)


def test_a_minimal_spec_gets_every_default() -> None:
    raw = service()
    del raw["spec"]["device"]
    assert parse_service(raw) == Service(
        namespace="team-a",
        name="smollm2",
        uid="service-uid",
        generation=1,
        model=Model("oci://reg.test/smollm2:q4", "oci", "reg.test/smollm2:q4", "smollm2"),
        device="GPU",
        vram=Vram(None, None, "nvidia.com/gpu"),
        replicas=1,
        scaling=None,
        startup_timeout_seconds=1800,
        drain=Drain(120, 5),
        rollout=Rollout("Auto", 1800),
        runtime_version="",
        pod_template=PodTemplate(),
    )


@pytest.mark.parametrize(
    ("spec", "field", "parsed"),
    [
        (
            {"vram": {"budget": "48Gi", "gpuMemory": "80Gi", "gpuResource": "amd.com/gpu"}},
            "vram",
            Vram(48 * GIB, 80 * GIB, "amd.com/gpu"),
        ),
        (
            {"engine": {"maxModelLen": 8192, "gpuMemoryUtilization": "0.90", "extraArgs": ["-v"]}},
            "engine",
            EngineOptions(
                max_model_len=8192, gpu_memory_utilization=Decimal("0.90"), extra_args=("-v",)
            ),
        ),
        ({"scaling": {"maxReplicas": 4}}, "scaling", Scaling(4, 1, 4, 300)),
        ({"replicas": 0}, "replicas", 0),
        ({"drain": {"timeoutSeconds": 0}}, "drain", Drain(0, 5)),
        ({"rollout": {"strategy": "Replace"}}, "rollout", Rollout("Replace", 1800)),
        (
            {"podTemplate": {"resources": {"limits": {"cpu": 2, "memory": "1Gi"}}}},
            "pod_template",
            PodTemplate(limits={"cpu": "2", "memory": "1Gi"}),
        ),
    ],
    ids=[
        "memory is read as quantities",
        "the engine's numbers are read and the rest stays to be derived",
        "scaling gets its defaults",
        "zero replicas are a number",
        "a drain of no seconds is a number",
        "the strategy is read",
        "a bare number is a quantity as well",
    ],
)
def test_fields_are_read(spec: dict[str, Any], field: str, parsed: Any) -> None:
    assert getattr(parse_service(service(**spec)), field) == parsed


@pytest.mark.parametrize(
    ("uri", "claim", "path"),
    [("pvc://models", "models", ""), ("pvc://models/llama/7b/", "models", "llama/7b")],
    ids=["a claim's root", "a path in a claim"],
)
def test_a_claim_and_its_path_are_told_apart(uri: str, claim: str, path: str) -> None:
    model = parse_service(service(model={"uri": uri})).model
    assert (model.claim, model.claim_path) == (claim, path)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"model": {"uri": "s3://bucket"}}, "spec.model.uri"),
        ({"vram": {"budget": "lots"}}, "spec.vram.budget"),
        ({"vram": {"budget": "1e19"}}, "spec.vram.budget"),
        ({"vram": {"gpuMemory": str(2**60 + 1)}}, "spec.vram.gpuMemory is .* write at most 1Ei"),
        ({"podTemplate": {"resources": {"limits": {"memory": "2Ei"}}}}, "limits.memory is 2Ei"),
        ({"engine": {"gpuMemoryUtilization": "half"}}, "spec.engine.gpuMemoryUtilization"),
        ({"device": "TPU"}, "spec.device"),
        ({"podTemplate": {"resources": {"limits": {"memory": "much"}}}}, "limits.memory"),
    ],
    ids=[
        "an unknown scheme",
        "no quantity",
        "beyond all quantities",
        "more than integers hold",
        "a limit that nothing has",
        "no decimal",
        "an unknown device",
        "no limit",
    ],
)
def test_what_cannot_be_meant_is_told_on_the_object(spec: dict[str, Any], named: str) -> None:
    raw = service(**spec, status={"url": "kept", "conditions": [condition("Available", "True")]})
    with pytest.raises(SpecError, match=named):
        parse_service(raw)
    decided = plan(observed(raw), NOW)
    assert (decided.children, decided.deletions) == ((), ())
    assert re.search(named, condition_of(decided, "Ready")["message"])
    assert says(decided, "Stalled") == ("True", "SpecInvalid")
    assert says(decided, "Available") == ("True", "Reason")
    assert (decided.status or {})["url"] == "kept"


def test_an_invalid_spec_is_announced_once() -> None:
    raw = service(model={"uri": "s3://bucket"})
    first = plan(observed(raw), NOW)
    again = plan(observed(raw | {"status": first.status}), NOW)
    assert [note.reason for note in first.notes] == ["SpecInvalid"]
    assert again.notes == ()
    assert again.status == first.status


def test_nothing_is_planned_for_a_service_that_is_being_deleted() -> None:
    decided = plan(observed(leaving(service())), NOW)
    assert (decided.children, decided.status) == ((), None)
