"""What a model is, from its own files: the sizes, and the few numbers that sizes do not need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay_budget.checkpoint import inspect_model
from forebay_budget.gguf import read_gguf_header
from forebay_budget.inspection import Inspection, ModelError
from forebay_budget.locate import is_gguf, locate_model
from forebay_budget.source import LocalFolder, read_json_object

_DEFAULT_RMS_NORM_EPS = 1e-6
_DEFAULT_ROPE_THETA = 10_000.0
"""What transformers assumes where a config.json is silent."""


@dataclass(frozen=True)
class Description:
    """A model that the runtime can run."""

    path: Path
    """A GGUF file, or a folder with config.json."""
    inspection: Inspection
    rms_norm_eps: float
    rope_theta: float
    eos_token_ids: frozenset[int]


def describe_model(path: Path) -> Description:
    """Read a model's headers and configuration, never its weights.

    Raises: ModelError if it is no model, or one that the runtime does not run.
    """
    located = locate_model(path)
    inspection = inspect_model(located)
    if is_gguf(located):
        return _describe_gguf(located, inspection)
    return _describe_folder(located, inspection)


def _describe_gguf(path: Path, inspection: Inspection) -> Description:
    metadata = read_gguf_header(path, max_array_items=1_024).metadata
    kind = metadata["general.architecture"]
    ends = ("eos", "eot", "eom")
    return Description(
        path,
        inspection,
        _float(metadata, f"{kind}.attention.layer_norm_rms_epsilon", _DEFAULT_RMS_NORM_EPS),
        _float(metadata, f"{kind}.rope.freq_base", _DEFAULT_ROPE_THETA),
        frozenset(
            token_id
            for end in ends
            for token_id in _token_ids(metadata.get(f"tokenizer.ggml.{end}_token_id"))
        ),
    )


def _describe_folder(path: Path, inspection: Inspection) -> Description:
    folder = LocalFolder(path)
    config, _ = read_json_object(folder.open("config.json"))
    generation: Mapping[str, Any] = {}
    if "generation_config.json" in folder.names():
        generation, _ = read_json_object(folder.open("generation_config.json"))
    rope = config.get("rope_parameters") or {}
    rope_theta = _float(config, "rope_theta", _DEFAULT_ROPE_THETA)
    return Description(
        path,
        inspection,
        _float(config, "rms_norm_eps", _DEFAULT_RMS_NORM_EPS),
        _float(rope, "rope_theta", rope_theta),
        # As transformers does: what generation_config.json names replaces config.json's.
        _token_ids(generation.get("eos_token_id", config.get("eos_token_id"))),
    )


def _float(document: Mapping[str, Any], key: str, default: float) -> float:
    value = document.get(key)
    if value is None:
        return default
    if not isinstance(value, int | float) or not value > 0:
        raise ModelError("BadConfig", f"The model's {key} is {str(value)[:40]}, no usable number.")
    return float(value)


def _token_ids(value: Any) -> frozenset[int]:
    """One id, a list of ids, or none."""
    if value is None:
        return frozenset()
    token_ids = value if isinstance(value, list) else [value]
    if not all(type(token_id) is int for token_id in token_ids):
        raise ModelError("BadConfig", f"The model's eos_token_id is {str(value)[:40]}, no token.")
    return frozenset(token_ids)
