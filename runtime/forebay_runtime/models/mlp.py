"""A layer's gated MLP, and the mixture of several that stands in its place."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from forebay_budget.blueprint import Blueprint
from forebay_kernels import ops
from forebay_runtime.models.link import Link
from forebay_runtime.models.product import Product
from forebay_runtime.models.projection import Projection
from forebay_runtime.models.residual import Residual
from forebay_runtime.models.row_padding import padded_size
from forebay_runtime.models.shard import Block
from forebay_runtime.models.weights import WeightReader

_GATES = {"silu": ops.silu_mul, "gelu_pytorch_tanh": ops.gelu_tanh_mul}


class Mlp:
    """down(act(gate(x)) * up(x)), gate and up as one product."""

    def __init__(self, blueprint: Blueprint, reader: WeightReader, layer: str, link: Link) -> None:
        sizes, family = blueprint.sizes, blueprint.family
        inner = Block(sizes.intermediate_size, link.shard)
        parts = {"gate_proj": [inner], "up_proj": [inner]}
        if family.is_fused:
            parts = {"gate_up_proj": [inner, inner]}
        self._gate = _GATES[family.activation]
        self._gate_up = reader.split_outputs(f"{layer}.mlp", parts, sizes.hidden_size)
        self._down = Projection(
            reader.split_inputs(f"{layer}.mlp.down_proj", sizes.hidden_size, inner.num_rows),
            Projection.read_norm(blueprint, reader, layer, family.norms.after_mlp),
            blueprint.rms_norm_eps,
            link,
        )
        self.num_bytes = self._gate_up.num_bytes + self._down.num_bytes
        self.waits_for_device = False

    def add_to(self, residual: Residual, x: Tensor) -> None:
        """Shapes: x [T, h]."""
        self._down.add_to(residual, self._gate(self._gate_up(x)))


class Expert:
    """One MLP of a mixture, or a rank's part of it: then results add up over ranks."""

    def __init__(
        self,
        blueprint: Blueprint,
        reader: WeightReader,
        name: str,
        parts: tuple[str, str, str],
        inner: Block,
    ) -> None:
        """parts: what gate, up and down are called; inner: the numbers between them a token."""
        gate, up, down = parts
        hidden = blueprint.sizes.hidden_size
        self._gate = _GATES[blueprint.family.activation]
        self.gate_up = reader.split_outputs(name, {gate: [inner], up: [inner]}, hidden)
        self.down = reader.split_inputs(f"{name}.{down}", hidden, inner.num_rows)
        self.num_bytes = self.gate_up.num_bytes + self.down.num_bytes

    def __call__(self, x: Tensor) -> Tensor:
        """Shapes: x, out [n, h]."""
        return self.down(self._gate(self.gate_up(x)))

    def run_padded(self, x: Tensor) -> Tensor:
        """The same for any number of rows, in one of the sizes that warm-up has run."""
        num_rows = x.shape[0]
        padding = padded_size(num_rows) - num_rows
        return self(functional.pad(x, (0, 0, 0, padding)))[:num_rows] if padding else self(x)


class Mixture:
    """Experts of which each token passes a few, and in some families one that all tokens pass.

    Where the device has kernels for it, all experts are one operation; else tokens are grouped by
    expert, so that each expert that anyone chose is one MLP over its tokens.
    Source: Jiang et al. 2024 (Mixtral) §2.1; Yang et al. 2024 (Qwen2) §2.2 for the shared expert.
    """

    def __init__(self, blueprint: Blueprint, reader: WeightReader, layer: str, link: Link) -> None:
        sizes, names, self._link = blueprint.sizes, blueprint.family.experts, link
        self._num_chosen = sizes.num_experts_per_token
        self._is_normalised = blueprint.normalises_experts
        block = f"{layer}.{names.block}"
        parts = (names.gate, names.up, names.down)
        self._router = reader.linear(block, {"gate": sizes.num_experts}, sizes.hidden_size)
        self._experts = [
            Expert(
                blueprint,
                reader,
                f"{block}.experts.{number}",
                parts,
                Block(sizes.expert_intermediate_size, link.shard),
            )
            for number in range(sizes.num_experts)
        ]
        self._grouped = ops.group_experts(
            [expert.gate_up for expert in self._experts],
            [expert.down for expert in self._experts],
            _GATES[blueprint.family.activation],
        )
        self.waits_for_device = self._grouped is None
        """Does the host wait to learn who chose which expert?"""
        self._shared: tuple[Expert, Product] | None = None
        inner = sizes.shared_intermediate_size
        if inner:
            shared, own = ("gate_proj", "up_proj", "down_proj"), Block(inner, link.shard)
            self._shared = (
                Expert(blueprint, reader, f"{block}.shared_expert", shared, own),
                reader.linear(block, {"shared_expert_gate": 1}, sizes.hidden_size),
            )
        all_parts = (self._router, *self._experts, *(self._shared or ()))
        self.num_bytes = sum(part.num_bytes for part in all_parts)

    def add_to(self, residual: Residual, x: Tensor) -> None:
        """Shapes: x [T, h]."""
        weights, experts = ops.choose_experts(
            self._router(x), self._num_chosen, is_normalised=self._is_normalised
        )
        if self._grouped is not None:
            out = self._grouped(x, weights, experts)
        else:
            out = self._run_by_expert(x, weights, experts)
        if self._shared is not None:
            expert, gate = self._shared
            out += ops.sigmoid(gate(x)) * expert(x)
        residual.add(self._link.add_up(out))

    def _run_by_expert(self, x: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        weights = weights.flatten().to(x.dtype).unsqueeze(1)
        out = torch.zeros_like(x)
        for number, places in ops.group_by_expert(experts, len(self._experts)):
            tokens = places // self._num_chosen
            out.index_add_(0, tokens, self._experts[number].run_padded(x[tokens]) * weights[places])
        return out
