"""Terse pictures of one InferenceService and what belongs to it, for tests of planning.

Every builder returns what the API server would send; times are seconds after NOW.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from forebay_budget.inspection import Inspection, ModelConfig, WeightGroup
from forebay_operator.observed import Key, Object, Observed, PodLoad, Settings
from forebay_operator.planned import Plan

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
KEY = Key("team-a", "smollm2")
SETTINGS = Settings(runtime_image="reg.test/runtime:v1", operator_image="reg.test/operator:v1")
GIB = 1024**3

SMOLLM2 = Inspection(
    config=ModelConfig(
        architecture="LlamaForCausalLM",
        num_layers=30,
        hidden_size=576,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        intermediate_size=1536,
        vocab_size=49152,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        dtype="bfloat16",
    ),
    weights=(
        WeightGroup("embedding", "Q4_1", 28_311_552, 17_694_720),
        WeightGroup("sharded", "Q4_1", 106_168_320, 66_355_200),
        WeightGroup("replicated", "F32", 35_136, 140_544),
    ),
    format="gguf",
    revision="sha256:0123456789abcdef",
    quantization="Q4_1",
)

LLAMA_13B = Inspection(
    config=ModelConfig(
        architecture="LlamaForCausalLM",
        num_layers=40,
        hidden_size=5120,
        num_heads=40,
        num_kv_heads=8,
        head_dim=128,
        intermediate_size=13824,
        vocab_size=32000,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        dtype="bfloat16",
    ),
    weights=(
        WeightGroup("embedding", "BF16", 327_680_000, 655_360_000),
        WeightGroup("sharded", "BF16", 11_010_048_000, 22_020_096_000),
        WeightGroup("replicated", "BF16", 414_720, 829_440),
    ),
    format="safetensors",
    revision="abc123",
)


def at(seconds: float) -> datetime:
    """A moment."""
    return NOW + timedelta(seconds=seconds)


def text(seconds: float) -> str:
    """A moment as Kubernetes writes it."""
    return at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def service(
    generation: int = 1, status: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """An InferenceService; `model` and `device` have values that need no GPU."""
    return {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {
            "name": KEY.name,
            "namespace": KEY.namespace,
            "uid": "service-uid",
            "generation": generation,
            "creationTimestamp": text(-3600),
        },
        "spec": {"model": {"uri": "oci://reg.test/smollm2:q4"}, "device": "CPU"} | spec,
        "status": dict(status or {}),
    }


def known_model(
    uri: str = "oci://reg.test/smollm2:q4", inspection: Inspection = SMOLLM2
) -> dict[str, Any]:
    """`status.model` of an inspected model."""
    return {"uri": uri, "inspection": inspection.to_json()}


def condition(
    condition_type: str, status: str, reason: str = "Reason", since: float = -60, **more: Any
) -> dict[str, Any]:
    """One condition, of any object."""
    return {
        "type": condition_type,
        "status": status,
        "reason": reason,
        "message": "A message.",
        "lastTransitionTime": text(since),
    } | more


def pod(
    name: str = "smollm2-1",
    ready: bool = False,
    template: str = "",
    created: float = -60,
    status: Mapping[str, Any] | None = None,
    **container: Any,
) -> dict[str, Any]:
    """A serving pod; keyword arguments become its container's status."""
    ready_condition = condition("Ready", "True" if ready else "False", since=created + 20)
    return {
        "metadata": {
            "name": name,
            "namespace": KEY.namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": text(created),
            "labels": {
                "forebay.dev/inference-service": KEY.name,
                "forebay.dev/template-hash": template,
            },
        },
        "spec": {"containers": [{"name": "runtime", "image": "reg.test/runtime:v1"}]},
        "status": {
            "phase": "Running" if ready else "Pending",
            "conditions": [condition("PodScheduled", "True", since=created), ready_condition],
            "containerStatuses": [{"name": "runtime", "started": ready} | container],
        }
        | dict(status or {}),
    }


def leaving(thing: dict[str, Any], deadline: float = 60) -> dict[str, Any]:
    """The same with a deletion timestamp."""
    metadata = thing["metadata"] | {"deletionTimestamp": text(deadline)}
    return thing | {"metadata": metadata}


def unschedulable(sentence: str, since: float = -5) -> dict[str, Any]:
    """A pod's status when no node takes it."""
    said = condition("PodScheduled", "False", "Unschedulable", since, message=sentence)
    return {"conditions": [said], "containerStatuses": []}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    """A container's state."""
    return {"waiting": {"reason": reason, "message": message}}


def terminated(exit_code: int = 1, message: str = "", reason: str = "Error") -> dict[str, Any]:
    """A container's state."""
    return {
        "terminated": {
            "exitCode": exit_code,
            "message": message,
            "reason": reason,
            "startedAt": text(-8),
            "finishedAt": text(-5),
        }
    }


def job_pod(job: Object, pod_status: Mapping[str, Any] | None = None, **container: Any) -> Any:
    """The pod of an inspection Job."""
    status = {"phase": "Pending", "containerStatuses": [{"name": "inspect"} | container]}
    return {
        "metadata": {
            "name": f"{job['metadata']['name']}-x",
            "uid": f"pod-of-{job['metadata'].get('uid', '')}",
            "creationTimestamp": text(-5),
            "ownerReferences": [{"uid": job["metadata"].get("uid", ""), "controller": True}],
        },
        "spec": {"containers": [{"name": "inspect", "image": SETTINGS.operator_image}]},
        "status": status | dict(pod_status or {}),
    }


def warning(reason: str, message: str, uid: str) -> dict[str, Any]:
    """A Warning Event about an object."""
    return {"reason": reason, "message": message, "involvedObject": {"uid": uid}}


def gpu_node(name: str, memory_mib: int, num_gpus: int, **labels: str) -> dict[str, Any]:
    """A node with GPUs, whose memory GPU feature discovery has labelled."""
    memory = {"nvidia.com/gpu.memory": str(memory_mib)} if memory_mib else {}
    return labelled_node(name, {"nvidia.com/gpu": num_gpus}, memory | labels)


def labelled_node(
    name: str, resources: Mapping[str, int], labels: Mapping[str, str], **spec: Any
) -> dict[str, Any]:
    """A ready node; spec has its taints and its cordon."""
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name} | dict(labels)},
        "spec": spec,
        "status": {
            "allocatable": {resource: str(count) for resource, count in resources.items()},
            "conditions": [condition("Ready", "True")],
        },
    }


def load(num_running: int = 0, num_waiting: int = 0, answered: bool = True) -> PodLoad:
    """What a pod said last."""
    return PodLoad(answered, num_running, num_waiting)


def observed(raw: Object | None = None, **rest: Any) -> Observed:
    """A picture; what is left out is not there."""
    return Observed(key=KEY, settings=SETTINGS, service=raw or service(), **rest)


def born(manifest: Object, uid: str = "", created: float = -30, **more: Any) -> dict[str, Any]:
    """A child as the API server returns it after it was applied."""
    metadata = manifest["metadata"]
    kind = manifest["kind"].lower()
    given = {"uid": uid or f"{kind}-uid", "creationTimestamp": text(created), "generation": 1}
    return {**manifest, "metadata": {**metadata, **given}, **more}


def child(plan: Plan, kind: str) -> dict[str, Any] | None:
    """The one child of a kind."""
    found = [dict(one) for one in plan.children if one["kind"] == kind]
    if len(found) > 1:
        raise LookupError(f"{len(found)} children of kind {kind}")
    return found[0] if found else None


def condition_of(plan: Plan, condition_type: str) -> dict[str, Any]:
    """A condition that the plan writes; empty where there is none."""
    conditions = (plan.status or {}).get("conditions", [])
    return next((dict(one) for one in conditions if one["type"] == condition_type), {})


def says(plan: Plan, condition_type: str) -> tuple[str, str]:
    """Status and reason of a condition."""
    found = condition_of(plan, condition_type)
    return found.get("status", ""), found.get("reason", "")
