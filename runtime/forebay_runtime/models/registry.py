"""Which model class runs which architecture.

A family also has an entry in forebay_budget.family, which refuses all others by name before any
weights are read.
"""

from __future__ import annotations

from dataclasses import dataclass

from forebay_budget.family import find_family
from forebay_budget.inspection import ModelError
from forebay_runtime.loading.checkpoint import Checkpoint
from forebay_runtime.models.llama import LlamaConfig, LlamaModel, Placement


@dataclass(frozen=True)
class Family:
    """How an architecture differs from plain Llama.

    needs_qkv_bias: its q, k and v products always have a bias, so a checkpoint without is damaged.
    """

    needs_qkv_bias: bool = False


FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": Family(),
    "MistralForCausalLM": Family(),
    "Qwen2ForCausalLM": Family(needs_qkv_bias=True),
}


def build_model(config: LlamaConfig, checkpoint: Checkpoint, placement: Placement) -> LlamaModel:
    """Read a checkpoint's weights into the model of its architecture.

    Raises: ModelError if the architecture is not known, a tensor is missing or has a wrong shape,
    or the checkpoint holds weights that the model would not use.
    """
    architecture = config.sizes.architecture
    find_family(architecture)
    if FAMILIES[architecture].needs_qkv_bias:
        for part in ("q_proj", "k_proj", "v_proj"):
            _expect(checkpoint, f"model.layers.0.self_attn.{part}.bias", architecture)
    model = LlamaModel(config, checkpoint, placement)
    _refuse_unused(checkpoint, config)
    return model


def _expect(checkpoint: Checkpoint, name: str, architecture: str) -> None:
    if not checkpoint.has(name):
        raise ModelError(
            "IncompleteModel",
            f"The checkpoint lacks {checkpoint.stored_name(name)}, which {architecture} needs.",
        )


def _refuse_unused(checkpoint: Checkpoint, config: LlamaConfig) -> None:
    """Weights that nobody read would make a model that answers, but wrongly."""
    unused = [name for name in checkpoint.unread_names() if not _is_derived(name, config)]
    if unused:
        raise ModelError(
            "UnsupportedConfig",
            f"The checkpoint has {len(unused)} tensors that {config.sizes.architecture} does not "
            f"use, the first is {unused[0]}.",
        )


def _is_derived(name: str, config: LlamaConfig) -> bool:
    """Is it a copy of something else: a tied head, a table of rotary frequencies?"""
    is_tied_head = config.sizes.tie_word_embeddings and name in ("lm_head.weight", "output.weight")
    return is_tied_head or name.endswith("rotary_emb.inv_freq")
