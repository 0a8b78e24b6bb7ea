"""A model of 13 billion parameters, known already, that asks for GPUs: what is decided for it."""

from typing import Any

from forebay_operator.planned import Plan
from forebay_operator.planning import plan
from observed_builder import LLAMA_13B, NOW, condition_of, known_model, observed, says, service

URI = "pvc://models/llama"
ENGINE = {"maxModelLen": 4096, "maxNumSeqs": 8}
MIB_16, MIB_80 = 16 * 1024, 80 * 1024


def sized(
    *nodes: dict[str, Any],
    slices: tuple[dict[str, Any], ...] = (),
    readable: bool = True,
    **spec: Any,
) -> Plan:
    """What is decided with these nodes: one GPU of 27 GiB would do, or two of 16."""
    spec = {"device": "GPU", "model": {"uri": URI}, "engine": ENGINE} | spec
    raw = service(status={"model": known_model(URI, LLAMA_13B)}, **spec)
    return plan(observed(raw, nodes=nodes, resource_slices=slices, nodes_readable=readable), NOW)


def told(decided: Plan) -> dict[str, Any]:
    """`status.plan` of what fits."""
    assert says(decided, "Fits") == ("True", "Fits"), condition_of(decided, "Fits")
    found: dict[str, Any] = (decided.status or {})["plan"]
    return found


def gpus(decided: Plan) -> tuple[int, str]:
    """How many GPUs were chosen, and of what size."""
    return told(decided)["tensorParallelSize"], told(decided)["gpuMemory"]
