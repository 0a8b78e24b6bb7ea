"""Fetch a model from a hub into the local cache: safetensors and what describes them, no code.

Called by the command line for `hf://` models before the engine is made.
"""

from __future__ import annotations

import os
from pathlib import Path

from forebay_budget.hub import parse_hub_uri
from forebay_budget.inspection import ModelError
from forebay_budget.locate import locate_model

_WANTED = ("*.safetensors", "*.json", "tokenizer.model", "*.jinja", "merges.txt", "vocab.txt")
_UNWANTED = ("consolidated*", "*/*")
"""The same weights again in another layout, and other models or formats in folders."""


def find_model(model: str) -> Path:
    """Where a model lies: a path, or `hf://…`, which is fetched.

    Raises: ModelError.
    """
    return locate_model(download_model(model) if model.startswith("hf://") else Path(model))


def download_model(uri: str) -> Path:
    """Fetch `hf://organisation/name[@revision]` and return the folder that holds it.

    The endpoint and the token are the hub client's own: HF_ENDPOINT and HF_TOKEN.
    Raises: ModelError if the hub does not give it.
    """
    model = parse_hub_uri(uri)
    from huggingface_hub import errors, snapshot_download

    try:
        folder = snapshot_download(
            model.repository,
            revision=model.revision,
            allow_patterns=list(_WANTED),
            ignore_patterns=list(_UNWANTED),
            endpoint=os.environ.get("HF_ENDPOINT") or None,
            cache_dir=os.environ.get("HF_HUB_CACHE") or None,
        )
    except errors.GatedRepoError as error:
        raise ModelError(
            "AccessDenied", f"{model} is gated; accept its terms and give a token in HF_TOKEN."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelError("RevisionNotFound", f"{model} has no such revision.") from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            "ModelNotFound",
            f"The hub has no model {model}, or it is private and HF_TOKEN is unset.",
        ) from error
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, OSError) as error:
        raise ModelError("HubUnreachable", f"{model} could not be fetched: {error}") from error
    return Path(folder)
