"""What a model is, from its own files: all but the tensors themselves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from forebay_budget.blueprint import Blueprint
from forebay_budget.checkpoint import examine_model
from forebay_budget.gguf import read_gguf_header
from forebay_budget.inspection import Inspection
from forebay_budget.locate import is_gguf, locate_model
from forebay_runtime.loading.end_tokens import folder_end_tokens, gguf_end_tokens


@dataclass(frozen=True)
class Description:
    """A model that the runtime can run."""

    path: Path
    """A GGUF file, or a folder with config.json."""
    inspection: Inspection
    blueprint: Blueprint
    eos_token_ids: frozenset[int]


def describe_model(path: Path) -> Description:
    """Read a model's headers and configuration, never its weights.

    Raises: ModelError if it is no model, or one that the runtime does not run.
    """
    located = locate_model(path)
    inspection, blueprint = examine_model(located)
    if is_gguf(located):
        ends = gguf_end_tokens(read_gguf_header(located, max_array_items=1_024).metadata)
    else:
        ends = folder_end_tokens(located)
    return Description(located, inspection, blueprint, ends)
