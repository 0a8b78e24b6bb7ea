"""Choose how a model is spread over GPUs (or sits in a CPU pod's memory), or say what would fit.

`size` is pure. All sums are bytes per GPU unless a name says otherwise.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from forebay_budget.quantity import to_quantity

Device = Literal["GPU", "CPU"]


@dataclass(frozen=True)
class Demand:
    """What the user and the cluster say; None is derived."""

    device: Device
    gpu_memory_bytes: int | None = None
    """Of one GPU."""
    budget_bytes: int | None = None
    """Cap per replica, over all its GPUs; on a CPU the pod's memory limit."""
    max_gpus_per_node: int = 8
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    mean_tokens: int | None = None
    """Mean length of a request, prompt and answer; a quarter of max_model_len where absent."""
    tensor_parallel_size: int | None = None
    gpu_memory_utilization: Decimal | None = None
    dtype: str = "auto"
    quantization: str = "None"
    kv_cache_dtype: str = "auto"
    max_num_batched_tokens: int | None = None


@dataclass(frozen=True)
class Terms:
    """Where one GPU's memory (or the CPU pod's) goes."""

    weights_bytes: int
    kv_cache_bytes: int
    activation_bytes: int
    overhead_bytes: int

    @property
    def total_bytes(self) -> int:
        return (
            self.weights_bytes + self.kv_cache_bytes + self.activation_bytes + self.overhead_bytes
        )


@dataclass(frozen=True)
class Fit:
    """A plan that fits."""

    device: Device
    tensor_parallel_size: int
    """1 on a CPU."""
    gpu_memory_utilization: str | None
    """Two digits, rounded down: `0.92`; None on a CPU."""
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    mean_tokens: int
    terms: Terms
    """terms.kv_cache_bytes is the exact number for --kv-cache-memory-bytes."""
    kv_cache_tokens: int
    dtype: str
    kv_cache_dtype: str
    quantization: str
    budget_bytes: int
    """What the replica may take over all its GPUs; on a CPU the pod's memory limit."""
    explanation: str

    def to_plan(self) -> dict[str, Any]:
        """The keys and values of `status.plan`."""
        plan: dict[str, Any] = {
            "tensorParallelSize": self.tensor_parallel_size,
            "maxModelLen": self.max_model_len,
            "maxNumSeqs": self.max_num_seqs,
            "maxNumBatchedTokens": self.max_num_batched_tokens,
            "dtype": self.dtype,
            "kvCacheDtype": self.kv_cache_dtype,
            "quantization": self.quantization,
            "weights": to_quantity(self.terms.weights_bytes),
            "kvCache": to_quantity(self.terms.kv_cache_bytes),
            "budget": to_quantity(self.budget_bytes),
            "explanation": self.explanation,
        }
        if self.gpu_memory_utilization is not None:
            plan["gpuMemoryUtilization"] = self.gpu_memory_utilization
        return plan


@dataclass(frozen=True)
class Nearest:
    """One change of one field of the Demand that would fit."""

    field: str
    """A field of Demand: `max_model_len`, `budget_bytes`, …"""
    value: int | Decimal | None


@dataclass(frozen=True)
class Misfit:
    """Why nothing fits, and what would."""

    reason: Literal["InsufficientMemory", "InvalidField"]
    needed_bytes: int
    """Per replica, at the tensor parallelism that comes nearest; 0 for an invalid field."""
    allowed_bytes: int
    nearest: tuple[Nearest, ...]
    message: str
    """One sentence: bytes needed, bytes allowed, what would fit, and the field to change."""
