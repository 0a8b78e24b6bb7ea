"""All of a model and its serving that the compilation of a kernel can depend on.

The runtime makes one from a model's blueprint and the engine's flags; each gpu module's `variants`
takes it. Imports no Triton.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from forebay_kernels.gpu.architecture import Architecture

Dtype = Literal["bf16", "fp16", "fp32"]
"""By Triton's names."""
KvKind = Literal["plain", "fp8", "int8", "int4"]
WeightFormat = Literal["dense", "int4", "int8", "w8a8"]
Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True)
class Mixture:
    """A mixture's sizes; intermediate sizes are of one rank, shared 0: there is no such expert."""

    num_experts: int
    num_experts_per_token: int
    intermediate_size: int
    shared_intermediate_size: int = 0
    is_normalised: bool = False


@dataclass(frozen=True)
class Weights:
    """How matrices are stored.

    group_size: inputs that share a scale, 0: all of a row's. scale_dtype: None: the activations'.
    """

    format: WeightFormat = "dense"
    group_size: int = 0
    has_zero_points: bool = False
    scale_dtype: Dtype | None = None


@dataclass(frozen=True)
class ModelShape:
    """What one rank runs: heads and intermediate_size are that rank's part; vocab_size is whole, as
    only what is done with all scores is compiled for it.

    dtype: of activations and dense weights. norm_dtype: of norms' weights, wider where a family
    keeps them so. window_kinds: for each way that layers attend, whether it has a window, so
    (False,), (True,) or (False, True). has_softcap: of attention's scores. rotary_dim: numbers of
    a head that the rotary embedding turns.
    """

    architecture: Architecture
    dtype: Dtype
    head_dim: int
    num_heads: int
    num_kv_heads: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    rotary_dim: int
    norm_dtype: Dtype
    kv_kind: KvKind = "plain"
    block_size: int = 16
    window_kinds: tuple[bool, ...] = (False,)
    has_softcap: bool = False
    has_sinks: bool = False
    has_logit_softcap: bool = False
    has_qk_norm: bool = False
    has_qkv_bias: bool = False
    activation: Activation = "silu"
    weights: Weights = Weights()
    mixture: Mixture | None = None
    is_batch_invariant: bool = False

    @property
    def group(self) -> int:
        """Query heads of one KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def itemsize(self) -> int:
        """Bytes of an activation."""
        return 4 if self.dtype == "fp32" else 2

    @property
    def qkv_size(self) -> int:
        """Numbers of a token's queries, keys and values together."""
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
