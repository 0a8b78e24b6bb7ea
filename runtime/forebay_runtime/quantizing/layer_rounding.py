"""Rounds one layer: its matrices in the order in which tokens pass them.

Each is calibrated by what comes out of those before it as they were rounded, beside what the
original model has there, so that it makes good what they lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from forebay_budget.blueprint import Blueprint
from forebay_runtime.quantizing.awq import Part
from forebay_runtime.quantizing.grid import RoundedMatrix, to_half
from forebay_runtime.quantizing.input_statistics import InputStatistics
from forebay_runtime.quantizing.layer_tensors import LayerTensors
from forebay_runtime.quantizing.refusal import QuantizeError
from forebay_runtime.quantizing.rounding_method import RoundingMethod
from forebay_runtime.quantizing.stream import Stream

Rounded = dict[str, RoundedMatrix]
"""By the matrices' names within the layer; those that were skipped are not there."""


class LayerRounding:
    """One layer's tensors while they are rounded; they come to stand for what was written."""

    def __init__(self, blueprint: Blueprint, tensors: LayerTensors, method: RoundingMethod) -> None:
        self._blueprint, self._tensors, self._method = blueprint, tensors, method
        self.rounded: Rounded = {}
        self.errors: dict[str, float] = {}
        """Of the outputs of what was rounded: the root mean square, as a share of their own."""

    def run(self, own: Stream, original: Stream) -> None:
        """Round by what goes through the layer, and bring both streams behind it.

        own: through these tensors, behind layers that were rounded. original: as it always was.
        """
        first, o_proj, middle, down = _groups(self._blueprint.family.is_fused)
        norms, both = self._blueprint.family.norms, (own, original)
        inputs = self._observe(first, *(each.taps(each.steps.attention_inputs) for each in both))
        self._round(first, inputs, self._fold_into_norm(norms.before_attention))
        attended, was_attended = (
            [each.steps.attended(x) for x in each.taps(each.steps.attention_inputs)]
            for each in both
        )
        inputs = self._observe(o_proj, attended, was_attended)
        factors = self._round(o_proj, inputs, self._fold_into_values, self._tie_copies)
        if factors is not None:
            attended = [each / factors for each in attended]
        own.move(own.steps.after_attention, attended)
        original.move(original.steps.after_attention, was_attended)
        del attended, was_attended
        inputs = self._observe(middle, *(each.taps(each.steps.mlp_inputs) for each in both))
        self._round(middle, inputs, self._fold_into_norm(norms.before_mlp))
        inputs = self._observe(down, *(each.taps(each.steps.mlp_gated) for each in both))
        self._round(down, inputs, self._fold_into_up)
        for each in both:
            each.move(each.steps.after_mlp, each.taps(each.steps.mlp_gated))

    def round_alone(self) -> None:
        """Round to nearest, without looking at what goes through."""
        for group in _groups(self._blueprint.family.is_fused):
            self._round(group, None, lambda factors: None)

    def _observe(
        self, names: tuple[str, ...], taps: Iterable[Tensor], original_taps: Iterable[Tensor]
    ) -> InputStatistics | None:
        """What the inputs of some matrices are like; None where all of these are skipped."""
        if self._is_skipped(names):
            return None
        weight = self._tensors.matrices[names[0]].weight
        statistics = InputStatistics(weight.shape[1], weight.device)
        for x, original in zip(taps, original_taps, strict=True):
            statistics.add(x, original)
        return statistics

    def _round(
        self,
        names: tuple[str, ...],
        inputs: InputStatistics | None,
        fold: Callable[[Tensor], None],
        tie: Callable[[Tensor], Tensor] = lambda x: x,
    ) -> Tensor | None:
        """Round matrices of the same inputs; returns what these are divided by from here on."""
        if self._is_skipped(names):
            return None
        matrices = [self._tensors.matrices[name] for name in names]
        weight, moments, factors = torch.cat([matrix.weight for matrix in matrices]), None, None
        if inputs is not None:
            weight = inputs.aimed(weight)
            parts = self._parts(names[0], weight)
            factors, moments = self._method.factors(parts, inputs, tie), inputs.moments
        if factors is not None and moments is not None:
            fold(factors)
            weight *= factors
            moments = moments / factors / factors.unsqueeze(1)
        rounded, start = self._method.round(weight, moments), 0
        for name, matrix in zip(names, matrices, strict=True):
            rows = slice(start, start + len(matrix.weight))
            start = rows.stop
            self.rounded[name] = _check_scales(rounded.rows(rows), matrix.name)
            matrix.weight = self.rounded[name].weight()
            if moments is not None:
                self.errors[name] = output_error(weight[rows], matrix.weight, moments)
        return factors

    def _parts(self, first_name: str, weight: Tensor) -> list[Part]:
        """A group's matrices, those that are stored as one too; first_name: the first stored one's.

        Queries and keys are only compared, and what rounding does to them shows a tenth as much as
        what it does to values, which go on into the stream.
        """
        if first_name not in ("self_attn.q_proj", "self_attn.qkv_proj"):
            return [Part(weight)]
        sizes = self._blueprint.sizes
        num_keys = sizes.num_kv_heads * sizes.head_dim
        rows = [sizes.num_heads * sizes.head_dim, num_keys, num_keys]
        return list(map(Part, weight.split(rows), (0.1, 0.1, 1.0)))

    def _is_skipped(self, names: tuple[str, ...]) -> bool:
        """Engines hold matrices of the same inputs as one, so all of them are skipped, or none."""
        recipe = self._method.recipe
        return any(recipe.skips(self._tensors.matrices[name].name) for name in names)

    def _fold_into_norm(self, name: str) -> Callable[[Tensor], None]:
        def fold(factors: Tensor) -> None:
            self._tensors.norms[name] /= factors

        return fold

    def _fold_into_values(self, factors: Tensor) -> None:
        """Heads that see the same values have the same factors, so the first copy's are all."""
        sizes = self._blueprint.sizes
        own = factors.view(sizes.num_kv_heads, -1, sizes.head_dim)[:, 0].flatten()
        if self._blueprint.family.is_fused:
            self._divide_last_outputs("self_attn.qkv_proj", own)
        else:
            self._divide_last_outputs("self_attn.v_proj", own)

    def _fold_into_up(self, factors: Tensor) -> None:
        is_fused = self._blueprint.family.is_fused
        self._divide_last_outputs("mlp.gate_up_proj" if is_fused else "mlp.up_proj", factors)

    def _divide_last_outputs(self, name: str, factors: Tensor) -> None:
        """Divide a matrix's last outputs, rounded or not: rounding knows no outputs' sizes."""
        matrix, own = self._tensors.matrices[name], slice(-len(factors), None)
        if matrix.bias is not None:
            matrix.bias[own] /= factors
        rounded = self.rounded.get(name)
        if rounded is None:
            matrix.weight[own] /= factors.unsqueeze(1)
            return
        rounded.scales[own] = to_half(rounded.scales[own] / factors.unsqueeze(1))
        matrix.weight = _check_scales(rounded, matrix.name).weight()

    def _tie_copies(self, x: Tensor) -> Tensor:
        """The mean over the heads that see the same values. Shapes: x, out [H * D]."""
        sizes = self._blueprint.sizes
        copies = x.view(sizes.num_kv_heads, -1, sizes.head_dim)
        return copies.mean(1, keepdim=True).expand_as(copies).flatten()


def _check_scales(rounded: RoundedMatrix, module: str) -> RoundedMatrix:
    """Refuse a matrix before what it makes of its inputs is looked at, which is NaN.

    Raises: QuantizeError.
    """
    if not rounded.scales.isfinite().all():
        raise QuantizeError(
            f"{module} has weights so large that their scales are beyond float16, in which they "
            f"are written; leave it as it is by --skip {module}"
        )
    return rounded


def output_error(weight: Tensor, rounded: Tensor, moments: Tensor) -> float:
    """The root mean square of what outputs are off by, as a share of their own.

    Shapes: weight, rounded [N, K]; moments [K, K] of the inputs.
    """
    errors = rounded - weight
    lost, whole = (float(((each @ moments) * each).sum()) for each in (errors, weight))
    return (max(lost, 0.0) / whole) ** 0.5 if whole > 0 else 0.0


def _groups(is_fused: bool) -> tuple[tuple[str, ...], ...]:
    """A dense layer's matrices by the inputs that they share, in the order of tokens."""
    first: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    middle: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    if is_fused:
        first, middle = ("self_attn.qkv_proj",), ("mlp.gate_up_proj",)
    return first, ("self_attn.o_proj",), middle, ("mlp.down_proj",)
