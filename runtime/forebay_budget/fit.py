"""What sizing answers: a Fit, or a Misfit that says what would fit."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from forebay_budget.demand import Device
from forebay_budget.quantity import to_exact_quantity, to_quantity
from forebay_budget.terms import Terms


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
    """Whole blocks of 16."""
    dtype: str
    """`auto` where a CPU's runtime chooses."""
    kv_cache_dtype: str
    quantization: str
    """`None`, `INT8` or `INT4`: what is applied at load."""
    budget_bytes: int
    """What the replica may take over all its GPUs; on a CPU the pod's memory limit."""
    explanation: str
    pipeline_parallel_size: int = 1

    @property
    def num_gpus(self) -> int:
        """GPUs of a replica; 1 on a CPU, where it has none."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    def to_plan(self) -> dict[str, Any]:
        """The keys and values of `status.plan`; a CPU's has no utilisation, one stage no number."""
        stages = {"pipelineParallelSize": self.pipeline_parallel_size}
        utilization = {"gpuMemoryUtilization": self.gpu_memory_utilization}
        return {
            "tensorParallelSize": self.tensor_parallel_size,
            **(stages if self.pipeline_parallel_size > 1 else {}),
            **(utilization if self.gpu_memory_utilization is not None else {}),
            "maxModelLen": self.max_model_len,
            "maxNumSeqs": self.max_num_seqs,
            "maxNumBatchedTokens": self.max_num_batched_tokens,
            "dtype": self.dtype,
            "kvCacheDtype": self.kv_cache_dtype,
            "kvCacheTokens": self.kv_cache_tokens,
            "budget": to_exact_quantity(self.budget_bytes),
            "weights": to_quantity(self.terms.weights_bytes),
            "kvCache": to_quantity(self.terms.kv_cache_bytes),
            **self._draft_plan(),
            "activation": to_quantity(self.terms.activation_bytes),
            "overhead": to_quantity(self.terms.overhead_bytes),
            "explanation": self.explanation,
        }

    def _draft_plan(self) -> dict[str, Any]:
        """A draft model's part, where there is one."""
        if not self.terms.draft_weights_bytes:
            return {}
        return {
            "draftWeights": to_quantity(self.terms.draft_weights_bytes),
            "draftKvCache": to_quantity(self.terms.draft_kv_cache_bytes),
        }


@dataclass(frozen=True)
class Nearest:
    """A change of the Demand that would fit: nearly always one field."""

    changes: tuple[tuple[str, int | Decimal], ...]
    """Fields of Demand (`max_model_len`, `budget_bytes`, …) and their values."""


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
