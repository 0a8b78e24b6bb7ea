"""Goes through a model layer by layer, and writes each as it is rounded.

Held at a time: one layer in float32, as it was and as it is rounded, the moments of one matrix's
inputs, the calibration's states between two layers, likewise, and a shard of what is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from forebay_budget.blueprint import Blueprint
from forebay_budget.rope import Rope
from forebay_kernels.portable.elementwise import rope_table
from forebay_runtime.chat_template import ChatTemplate
from forebay_runtime.loading.checkpoint import Checkpoint, open_checkpoint, read_tensor
from forebay_runtime.loading.description import Description
from forebay_runtime.models.rope import rope_frequencies
from forebay_runtime.quantizing.layer_rounding import LayerRounding
from forebay_runtime.quantizing.layer_steps import LayerSteps, RopeTable
from forebay_runtime.quantizing.layer_tensors import LayerReader, LayerTensors, stored_vectors
from forebay_runtime.quantizing.layouts import pack_matrix
from forebay_runtime.quantizing.output import OutputFolder
from forebay_runtime.quantizing.recipe import Recipe
from forebay_runtime.quantizing.refusal import QuantizeError
from forebay_runtime.quantizing.rounding_method import RoundingMethod
from forebay_runtime.quantizing.stream import Stream
from forebay_runtime.text.tokenizer import Tokenizer

_BATCH_TOKENS = 4_096
"""Tokens that go through a layer at a time."""
_EMBEDDING, _HEAD, _NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"


@dataclass(frozen=True)
class LayerReport:
    """How one layer went: its number from 0 on, seconds, and its matrices' outputs' errors.

    errors: by name within the layer, the root mean square as a share of the outputs' own; empty
    where nothing was calibrated.
    """

    number: int
    seconds: float
    errors: dict[str, float]


Report = Callable[[LayerReport], None]


@dataclass(frozen=True)
class Source:
    """What is quantised."""

    described: Description
    tokenizer: Tokenizer
    template: ChatTemplate

    @property
    def blueprint(self) -> Blueprint:
        """Its decoder."""
        return self.described.blueprint


class Conversion:
    """One model on its way into one folder."""

    def __init__(
        self, source: Source, recipe: Recipe, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._recipe, self._dtype, self._device = recipe, dtype, device
        self._blueprint = source.blueprint
        self._checkpoint: Checkpoint = open_checkpoint(source.described.path, self._blueprint)
        self._reader = LayerReader(self._checkpoint, self._blueprint, device)
        self._method = RoundingMethod(recipe)
        self.kept: list[str] = []
        """Modules of layers that stayed plain, as far as they were written."""

    @torch.inference_mode()
    def run(self, output: OutputFolder, samples: list[list[int]], report: Report) -> None:
        """Write all tensors. samples: sequences of one length; none where none are looked at.

        Raises: ModelError or QuantizeError.
        """
        states = self._embed(samples, self._write_ends(output))
        original_states = [x.clone() for x in states]
        length, ropes = len(samples[0]) if samples else 0, dict[Rope, RopeTable]()
        for number, layer in enumerate(self._blueprint.layers):
            start = time.perf_counter()
            tensors = self._reader.read(number)
            rounding = LayerRounding(self._blueprint, tensors, self._method)
            if states:
                if layer.rope not in ropes:
                    ropes[layer.rope] = self._rope_table(layer.rope, length)
                own, original = (
                    LayerSteps(self._blueprint, layer, each, ropes[layer.rope])
                    for each in (tensors, self._reader.read(number))
                )
                rounding.run(Stream(own, states), Stream(original, original_states))
            else:
                rounding.round_alone()
            self._write_layer(output, number, tensors, rounding)
            report(LayerReport(number, time.perf_counter() - start, rounding.errors))

    def read_vector(self, name: str, size: int) -> Tensor:
        """A vector of the checkpoint's in float32."""
        return read_tensor(self._checkpoint, name, torch.empty(size))

    def has(self, name: str) -> bool:
        """Has the checkpoint a tensor of this name?"""
        return self._checkpoint.has(name)

    def _write_ends(self, output: OutputFolder) -> Tensor:
        """Write what is in no layer, and return the embedding."""
        sizes = self._blueprint.sizes
        names = [_EMBEDDING] if sizes.tie_word_embeddings else [_HEAD, _EMBEDDING]
        table = torch.empty(0)
        for name in names:
            table = torch.empty(sizes.vocab_size, sizes.hidden_size, dtype=self._dtype)
            _add(output, {name: read_tensor(self._checkpoint, name, table)})
        norm = self._reader.read_norm(_NORM, sizes.hidden_size)
        _add(output, {_NORM: (norm - self._blueprint.family.norm_offset).to(self._dtype)})
        return table

    def _embed(self, samples: list[list[int]], table: Tensor) -> list[Tensor]:
        """What the first layer takes, by batches: [B, L, h] float32."""
        if not samples:
            return []
        a_batch = max(1, _BATCH_TOKENS // len(samples[0]))
        scale = self._blueprint.sizes.hidden_size**0.5
        batches = []
        for token_ids in torch.tensor(samples).split(a_batch):
            x = functional.embedding(token_ids, table).float().to(self._device)
            batches.append(x * scale if self._blueprint.family.scales_embedding else x)
        return batches

    def _rope_table(self, rope: Rope, num_positions: int) -> RopeTable:
        most = self._blueprint.sizes.max_position_embeddings
        frequencies, scale = rope_frequencies(rope, num_positions, most, self.read_vector)
        cos, sin = rope_table(frequencies, num_positions, scale).to(self._device)
        return cos, sin

    def _write_layer(
        self, output: OutputFolder, number: int, tensors: LayerTensors, rounding: LayerRounding
    ) -> None:
        offset = self._blueprint.family.norm_offset
        for name, vector in stored_vectors(tensors, number, offset):
            _add(output, {name: vector.to(self._dtype)})
        for part, matrix in tensors.matrices.items():
            rounded = rounding.rounded.get(part)
            if rounded is None:
                _add(output, {f"{matrix.name}.weight": matrix.weight.to(self._dtype)})
                self.kept.append(matrix.name)
                continue
            packed = pack_matrix(rounded, self._recipe)
            _add(output, {f"{matrix.name}.{ending}": each for ending, each in packed.items()})


def _add(output: OutputFolder, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors, all of whose numbers can be told.

    Raises: QuantizeError naming one that holds others.
    """
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            format_name = str(tensor.dtype).removeprefix("torch.")
            raise QuantizeError(
                f"{name} has numbers that are NaN, or beyond what {format_name} holds; choose "
                "another --dtype if that is what was asked, else the checkpoint is damaged"
            )
    output.add(tensors)
