"""Which tokens end an answer, as a model's files say: one rule for the engine and the tokenizer.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay_budget.inspection import ModelError
from forebay_budget.locate import reading
from forebay_budget.source import LocalFolder, read_json_object

_GGUF_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def gguf_end_tokens(metadata: Mapping[str, Any]) -> frozenset[int]:
    """The ends of a sequence, a turn and a message, as far as a GGUF names them.

    Raises: ModelError if one is no token id.
    """
    named = [metadata.get(f"tokenizer.ggml.{key}") for key in _GGUF_KEYS]
    return frozenset().union(*map(_token_ids, named))


def folder_end_tokens(path: Path) -> frozenset[int]:
    """What generation_config.json names, or where it is silent config.json, as transformers does.

    Raises: ModelError if one is no token id, or the folder is gone.
    """
    folder = LocalFolder(path)
    with reading(path):
        for name in ("generation_config.json", "config.json"):
            if name not in folder.names():
                continue
            document, _ = read_json_object(folder.open(name))
            if "eos_token_id" in document:
                return _token_ids(document["eos_token_id"])
    return frozenset()


def _token_ids(value: Any) -> frozenset[int]:
    """One id, a list of ids, or none."""
    if value is None:
        return frozenset()
    token_ids = value if isinstance(value, list) else [value]
    if not all(type(token_id) is int for token_id in token_ids):
        raise ModelError("BadConfig", f"The model's eos_token_id is {str(value)[:40]}, no token.")
    return frozenset(token_ids)
