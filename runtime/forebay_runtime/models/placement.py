"""Where a model lives, and in which number formats."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from forebay_kernels import ops
from forebay_kernels.cpu.native_structs import InputForm


@dataclass(frozen=True)
class NativeForm:
    """How a CPU's own kernels keep what is not packed, and compute.

    dtype: of plain matrices, float32 or bfloat16. input_form: of products. num_threads: that share
    the work.
    """

    dtype: torch.dtype
    input_form: InputForm
    num_threads: int


@dataclass(frozen=True)
class Placement:
    """Device and number formats of weights, activations and cache.

    dtype: of activations, and of all weights that are not quantised. rounded_bits: what the layers'
    plain matrices are rounded to while they are read; None: they stay as they are. kv_cache_dtype:
    as in EngineConfig. native: on a CPU with kernels of its own, where dtype is float32; None:
    torch's operators, or a GPU's kernels.
    """

    dtype: torch.dtype
    device: torch.device
    rounded_bits: int | None = None
    kv_cache_dtype: str = "auto"
    native: NativeForm | None = None

    @property
    def dtype_name(self) -> str:
        """As flags and forebay_budget have it."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def kv_storage(self) -> tuple[str, torch.dtype]:
        """The kind of KvLayer, and the dtype of those that are plain."""
        if self.kv_cache_dtype in ops.KV_KINDS:
            return self.kv_cache_dtype, self.dtype
        if self.kv_cache_dtype == "auto":
            return "plain", self.dtype
        return "plain", getattr(torch, self.kv_cache_dtype)
