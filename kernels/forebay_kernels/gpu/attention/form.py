"""What a compilation of attention depends on, and the arguments that its kernels share.

A launcher makes a form of its tensors, `variants` one of a model's shape; both ask the form for a
kernel's constants, so that what is compiled is what is launched.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from forebay_kernels.attention_rule import AttentionRule
from forebay_kernels.choice import refuse_interpreted
from forebay_kernels.gpu.architecture import Architecture, architecture_of
from forebay_kernels.gpu.launch_tables import LaunchTable
from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.variant import Launch, Variant
from forebay_kernels.kv_layer import KvLayer
from forebay_kernels.ragged import Ragged

_DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
_STORED = {"fp8": "fp8e4nv", "fp8_bits": "u8", "int8": "i8", "int4": "u8"}
_SCALED = ("int8", "int4")
_CONVERTS_FP8 = 89
"""The compute capability from which on a GPU converts e4m3 itself."""
_LEAST_WIDTH = 16
"""Numbers along which a matrix instruction sums, at least."""
_ALL_KEYS = 2**30
"""The window of a layer that has none."""
LOG2_E = math.log2(math.e)

NUMBERS = ("table_stride", "num_seqs", "num_kv_heads", "group", "window")
"""Arguments whose value Triton must not compile for."""
_ALIGNED = frozenset(("out_ptr", "q_ptr", "k_ptr", "v_ptr", "parts_ptr"))
"""Tensors that begin at a multiple of 16 bytes."""
UNALIGNED = (
    *("k_scale_ptr", "v_scale_ptr", "sinks_ptr", "tables_ptr", "query_starts_ptr", "seq_lens_ptr"),
    *("highest_ptr", "total_ptr"),
)
"""Arguments of which Triton must not ask whether they are multiples of 16."""


@dataclass(frozen=True)
class AttentionForm:
    """All that a compilation depends on; kind: of the cache, "fp8_bits" for fp8 read as bits."""

    architecture: Architecture
    dtype: str
    head_dim: int
    group: int
    block_size: int
    kind: str
    has_cap: bool
    has_sinks: bool
    is_batch_invariant: bool

    @classmethod
    def of_shape(cls, shape: ModelShape) -> AttentionForm:
        """What a model's layers reach; the window is no matter."""
        return cls(
            shape.architecture,
            shape.dtype,
            shape.head_dim,
            shape.group,
            shape.block_size,
            _read_as(shape.kv_kind, shape.architecture),
            shape.has_softcap,
            shape.has_sinks,
            shape.is_batch_invariant,
        )

    @classmethod
    def of_call(
        cls, q: Tensor, layer: KvLayer, rule: AttentionRule, *, is_batch_invariant: bool
    ) -> AttentionForm:
        """What a call reaches.

        Raises: ValueError for tensors that the kernels are not made for.
        """
        _check(q, layer)
        architecture = architecture_of(q.device)
        return cls(
            architecture,
            _DTYPES[q.dtype],
            layer.head_dim,
            q.shape[1] // layer.num_kv_heads,
            layer.k.shape[1],
            _read_as(layer.kind, architecture),
            rule.softcap is not None,
            rule.sinks is not None,
            is_batch_invariant,
        )

    @property
    def size(self) -> int:
        """Numbers of a head as stored; in int4 each holds two."""
        return self.head_dim // 2 if self.kind == "int4" else self.head_dim

    @property
    def name(self) -> str:
        """For reports: what tells it from another of the same architecture."""
        marks = [f"d{self.head_dim}", self.dtype, self.kind, f"b{self.block_size}"]
        marks += ["cap"] * self.has_cap + ["sinks"] * self.has_sinks
        return "-".join(marks + ["invariant"] * self.is_batch_invariant)

    def choose(self, table: LaunchTable) -> Launch:
        """A kernel's launch; tables ask for the width of a head as a tile holds it, and more."""
        return table.choose(
            self.architecture,
            width=padded(self.head_dim),
            group=self.group,
            dtype=self.dtype,
            kind=self.kind,
            is_batch_invariant=self.is_batch_invariant,
        )

    def constants(self, launch: Launch) -> dict[str, Any]:
        """The constants that both kernels have."""
        return {
            "SIZE": self.size,
            "WIDTH": padded(self.size),
            "BLOCK_SIZE": self.block_size,
            "KIND": self.kind,
            "HAS_CAP": self.has_cap,
            "HAS_SINKS": self.has_sinks,
            **launch.tiles,
        }

    def variant(
        self,
        kernel: Any,
        launch: Launch,
        own_signature: Mapping[str, str],
        own_constants: Mapping[str, Any],
    ) -> Variant:
        """A kernel's compilation; own: what it alone has."""
        constants = {**self.constants(launch), **own_constants, **self._absent()}
        signature = {**self._signature(), **own_signature}
        group = [f"g{padded(self.group)}"] if self.group > _LEAST_WIDTH else []
        return Variant(
            f"{kernel.__name__}/{'-'.join([self.name, *group])}",
            kernel,
            {name: kind for name, kind in signature.items() if name not in constants},
            constants,
            launch,
            _ALIGNED.intersection(signature),
            uses_tensor_cores=self.dtype != "fp32",
        )

    def _absent(self) -> dict[str, None]:
        """The tensors that this form has not: constants, to Triton."""
        names = [] if self.kind in _SCALED else ["k_scale_ptr", "v_scale_ptr"]
        return dict.fromkeys(names if self.has_sinks else [*names, "sinks_ptr"])

    def _signature(self) -> dict[str, str]:
        numbers, stored = f"*{self.dtype}", f"*{_STORED.get(self.kind, self.dtype)}"
        return {
            **dict.fromkeys(("out_ptr", "q_ptr"), numbers),
            **dict.fromkeys(("k_ptr", "v_ptr"), stored),
            **dict.fromkeys(("k_scale_ptr", "v_scale_ptr", "sinks_ptr"), "*fp32"),
            **dict.fromkeys(("tables_ptr", "query_starts_ptr", "seq_lens_ptr"), "*i32"),
            "table_stride": "i64",
            **dict.fromkeys(("num_seqs", "num_kv_heads", "group", "window"), "i32"),
            **dict.fromkeys(("score_scale", "cap_scale"), "fp32"),
        }


def shared_arguments(
    q: Tensor, layer: KvLayer, ragged: Ragged, rule: AttentionRule, out: Tensor
) -> dict[str, Any]:
    """The arguments of both kernels that are no constants; none is read from the device."""
    scale = layer.head_dim**-0.5 if rule.scale is None else rule.scale
    bits = torch.uint8 if layer.kind == "fp8" and _reads_bits(architecture_of(q.device)) else None
    return {
        "out_ptr": out,
        "q_ptr": q.contiguous(),
        "k_ptr": layer.k if bits is None else layer.k.view(bits),
        "v_ptr": layer.v if bits is None else layer.v.view(bits),
        "k_scale_ptr": layer.k_scale,
        "v_scale_ptr": layer.v_scale,
        "sinks_ptr": rule.sinks,
        "tables_ptr": ragged.block_tables,
        "query_starts_ptr": ragged.query_starts,
        "seq_lens_ptr": ragged.seq_lens_device,
        "table_stride": ragged.block_tables.stride(0),
        "num_seqs": ragged.seq_lens_device.shape[0],
        "num_kv_heads": layer.num_kv_heads,
        "group": q.shape[1] // layer.num_kv_heads,
        "window": _ALL_KEYS if rule.window is None else rule.window,
        "score_scale": LOG2_E * scale * (1.0 if rule.softcap is None else 2.0 / rule.softcap),
        "cap_scale": LOG2_E * (rule.softcap or 0.0),
    }


def _check(q: Tensor, layer: KvLayer) -> None:
    """Refuse what the kernels would misread."""
    if q.shape[1] % layer.num_kv_heads:
        raise ValueError(
            f"{q.shape[1]} query heads do not divide over {layer.num_kv_heads} KV heads"
        )
    refuse_interpreted(q.dtype)
    if not (layer.k.is_contiguous() and layer.v.is_contiguous()):
        raise ValueError("a layer's keys and values must lie without gaps")


def padded(size: int) -> int:
    """Numbers that a tile has for so many."""
    return max(_LEAST_WIDTH, 1 << (size - 1).bit_length())


def _reads_bits(architecture: Architecture) -> bool:
    return architecture.capability < _CONVERTS_FP8


def _read_as(kind: str, architecture: Architecture) -> str:
    return "fp8_bits" if kind == "fp8" and _reads_bits(architecture) else kind
