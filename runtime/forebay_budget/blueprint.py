"""All that a model's files say of its decoder, but for the tensors themselves.

Read by `model_config`; sizing takes `sizes` from it, the layout's check the tensors' shapes, and
the runtime builds the decoder by it.
"""

from dataclasses import dataclass

from forebay_budget.family import Family
from forebay_budget.inspection import ModelConfig
from forebay_budget.packing import Packing
from forebay_budget.rope import Rope


@dataclass(frozen=True)
class Layer:
    """What layers of one decoder differ in."""

    window: int | None
    """Keys that a query sees, its own included; None: all before it."""
    rope: Rope
    has_experts: bool = False


@dataclass(frozen=True)
class Blueprint:
    """A decoder's family, sizes and numbers."""

    family: Family
    sizes: ModelConfig
    layers: tuple[Layer, ...]
    rms_norm_eps: float
    attention_scale: float
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    normalises_experts: bool = False
    """The weights of a token's experts add up to one."""
    packing: Packing | None = None
    """How the checkpoint's quantised matrices are kept; None: none is quantised."""
