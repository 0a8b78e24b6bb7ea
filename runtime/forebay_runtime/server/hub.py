"""Fetch a model named hf://org/name@revision; safetensors and JSON only, nothing that is code."""

from __future__ import annotations

import os
from pathlib import Path

from forebay_budget.hub import parse_hub_uri
from forebay_budget.inspection import ModelError

_PATTERNS = ["*.safetensors", "*.json", "*.jinja"]


def fetch_model(uri: str) -> Path:
    """Download the model, or find it in the hub's cache, and return its folder.

    Raises: ModelError with a sentence that leads to the cause.
    """
    model = parse_hub_uri(uri)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        folder = snapshot_download(
            model.repository,
            revision=model.revision,
            allow_patterns=_PATTERNS,
            token=os.environ.get("HF_TOKEN"),
        )
    except HfHubHTTPError as exc:
        raise _refused(uri, exc.response.status_code) from exc
    except OSError as exc:
        raise ModelError("HubUnreachable", f"{uri} could not be fetched: {exc}") from exc
    return Path(folder)


def _refused(uri: str, status: int) -> ModelError:
    if status in (401, 403):
        return ModelError(
            "AccessDenied", f"The hub answered {status} for {uri}; set HF_TOKEN to a token for it."
        )
    if status == 404:
        return ModelError("ModelNotFound", f"The hub has no {uri}.")
    return ModelError("HubUnreachable", f"The hub answered {status} for {uri}.")
