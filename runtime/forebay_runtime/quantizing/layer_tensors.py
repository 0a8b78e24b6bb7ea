"""One layer's tensors in float32: what is run, scaled and rounded, and let go before the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from forebay_budget.blueprint import Blueprint
from forebay_budget.inspection import ModelError
from forebay_budget.layout import layer_shapes
from forebay_runtime.loading.checkpoint import Checkpoint, read_tensor


@dataclass
class Matrix:
    """One of a layer's matrices, which rounding and folding change in place.

    name: its module's, as checkpoints have it. weight: [N, K]. bias: [N], or None.
    """

    name: str
    weight: Tensor
    bias: Tensor | None


@dataclass
class LayerTensors:
    """matrices and norms by their names within the layer: `self_attn.q_proj`, `input_layernorm`.

    Norms are as they are used, also in families that store them less an offset.
    """

    matrices: dict[str, Matrix] = field(default_factory=dict)
    norms: dict[str, Tensor] = field(default_factory=dict)


class LayerReader:
    """Reads a checkpoint's layers, one after another."""

    def __init__(self, checkpoint: Checkpoint, blueprint: Blueprint, device: torch.device) -> None:
        self._checkpoint = checkpoint
        self._device = device
        self._blueprint = blueprint
        whole = checkpoint.has_whole_norms
        self._norm_offset = 0 if whole else blueprint.family.norm_offset

    def read(self, number: int) -> LayerTensors:
        """One layer.

        Raises: ModelError naming a tensor that is missing or wrong.
        """
        tensors = LayerTensors()
        prefix = f"model.layers.{number}."
        shapes = layer_shapes(self._blueprint, self._blueprint.layers[number])
        for name, shape in shapes.items():
            if len(shape) == 1:
                tensors.norms[name] = self.read_norm(f"{prefix}{name}.weight", shape[0])
                continue
            bias_name, bias = f"{prefix}{name}.bias", None
            if self._checkpoint.has(bias_name):
                bias = self._read(bias_name, shape[:1])
            weight = self._read(f"{prefix}{name}.weight", shape)
            tensors.matrices[name] = Matrix(f"{prefix}{name}", weight, bias)
        return tensors

    def read_norm(self, name: str, size: int) -> Tensor:
        """A norm's weights as they are used."""
        return self._read(name, (size,)).add_(self._norm_offset)

    def _read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        tensor = read_tensor(self._checkpoint, name, torch.empty(shape)).to(self._device)
        if not tensor.isfinite().all():
            raise ModelError(
                "IncompleteModel",
                f"{self._checkpoint.stored_name(name)} has weights that are NaN or infinite; the "
                "file is damaged: get it anew.",
            )
        return tensor


def stored_vectors(
    tensors: LayerTensors, number: int, norm_offset: int
) -> Iterator[tuple[str, Tensor]]:
    """The layer's norms and biases by their full names, as a Hugging Face folder has them."""
    for name, norm in tensors.norms.items():
        yield f"model.layers.{number}.{name}.weight", norm - norm_offset
    for matrix in tensors.matrices.values():
        if matrix.bias is not None:
            yield f"{matrix.name}.bias", matrix.bias
