"""A model on a hub, as a folder at one commit whose files are read by ranges.

HF_ENDPOINT names another hub than the public one, HF_TOKEN opens private and gated models.
"""

import os
import re
import urllib.parse
from dataclasses import dataclass
from typing import Any

from forebay_budget.hub_client import HubClient
from forebay_budget.inspection import ModelError
from forebay_budget.locate import explain_no_model
from forebay_budget.source import Source

_URI = re.compile(
    r"hf://(?P<repository>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})"
    r"(?:@(?P<revision>[A-Za-z0-9][\w./-]{0,99}))?",
    re.ASCII,
)
_COMMIT = re.compile(r"[0-9A-Za-z]{1,64}", re.ASCII)


@dataclass(frozen=True)
class HubModel:
    """A repository on a hub, and a branch, tag or commit of it."""

    repository: str
    revision: str = "main"

    def __str__(self) -> str:
        return f"{self.repository}@{self.revision}"


def parse_hub_uri(uri: str) -> HubModel:
    """Read `hf://organisation/name[@revision]`.

    Raises: ModelError with the reason BadUri.
    """
    match = _URI.fullmatch(uri)
    if match is None or ".." in uri:
        raise ModelError(
            "BadUri", f"{uri[:200]!r} is not written like hf://organisation/name@revision."
        )
    return HubModel(match["repository"], match["revision"] or "main")


class HubFolder:
    """A repository at the commit that its revision names now."""

    def __init__(self, model: HubModel, client: HubClient | None = None) -> None:
        """Resolve the revision and list the files.

        Raises: ModelError where the hub does not tell, or the files are no safetensors.
        """
        self.label = str(model)
        self._client = client or HubClient.from_environment(os.environ)
        self._model = model
        revision = urllib.parse.quote(model.revision, safe="")
        path = f"api/models/{model.repository}/revision/{revision}"
        self.revision, self._names = _parse_listing(self._client.get_json(path, self.label), model)
        _check_names(self._names, model)

    def names(self) -> list[str]:
        return self._names

    def open(self, name: str) -> Source:
        path = f"{self._model.repository}/resolve/{self.revision}/{urllib.parse.quote(name)}"
        return HubFile(name, path, self._client, f"{name} of {self.label}")


class HubFile:
    """A file on a hub."""

    def __init__(self, name: str, path: str, client: HubClient, label: str) -> None:
        self.name = name
        self._label = label
        self._path = path
        self._client = client
        self._size: int | None = None

    def read(self, start: int, num_bytes: int) -> bytes:
        data, self._size = self._client.get(self._path, start, num_bytes, self._label)
        return data

    def size(self) -> int:
        if self._size is None:
            self.read(0, 1)
        return self._size or 0


def _parse_listing(listing: Any, model: HubModel) -> tuple[str, list[str]]:
    """Return the commit and the files directly in the repository."""
    try:
        commit = listing["sha"]
        names = sorted(sibling["rfilename"] for sibling in listing["siblings"])
        if not _COMMIT.fullmatch(commit):
            raise ValueError
    except (TypeError, KeyError, ValueError):
        raise ModelError(
            "HubError", f"The hub's answer about {model} names no commit and files."
        ) from None
    return commit, [name for name in names if "/" not in name]


def _check_names(names: list[str], model: HubModel) -> None:
    if "config.json" in names and any(name.endswith(".safetensors") for name in names):
        return
    if any(name.lower().endswith(".gguf") for name in names):
        raise ModelError(
            "NoSafetensors",
            f"{model} holds GGUF files, which are not read from a hub; put the one you want into "
            "an image (oci://) or a volume (pvc://).",
        )
    raise explain_no_model(str(model), names)
