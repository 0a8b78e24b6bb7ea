"""Where a model folder's bytes come from: a disk or a hub, read in ranges, never whole.

`checkpoint` reads through these two protocols; `hub` has the other implementation.
"""

import json
from pathlib import Path
from typing import Any, Protocol

from forebay_budget.inspection import ModelError

MAX_JSON_FILE_BYTES = 32 * 1024**2
"""More than the index of the largest open checkpoints; a config.json has a few KiB."""


class Source(Protocol):
    """One file, read by ranges."""

    name: str

    def read(self, start: int, num_bytes: int) -> bytes:
        """Return the bytes from start on: as many as asked, or as the file has."""
        ...

    def size(self) -> int:
        """Return the file's length in bytes; cheap once something was read."""
        ...


class Folder(Protocol):
    """A model's folder."""

    label: str
    """How messages name it."""

    def names(self) -> list[str]:
        """List the files directly in it."""
        ...

    def open(self, name: str) -> Source:
        """Return a file that `names` lists."""
        ...


class LocalFile:
    """A file on a disk."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._path = path

    def read(self, start: int, num_bytes: int) -> bytes:
        with self._path.open("rb") as stream:
            stream.seek(start)
            return stream.read(num_bytes)

    def size(self) -> int:
        return self._path.stat().st_size


class LocalFolder:
    """A folder on a disk."""

    def __init__(self, path: Path) -> None:
        self.label = str(path)
        self._path = path

    def names(self) -> list[str]:
        return sorted(child.name for child in self._path.iterdir() if child.is_file())

    def open(self, name: str) -> Source:
        return LocalFile(self._path / name)


def read_json_object(source: Source) -> tuple[dict[str, Any], bytes]:
    """Read a small JSON file: its object and its bytes.

    Raises: ModelError with the reason BadConfig.
    """
    text = source.read(0, MAX_JSON_FILE_BYTES + 1)
    if len(text) > MAX_JSON_FILE_BYTES:
        raise ModelError(
            "BadConfig",
            f"{source.name} has more than {MAX_JSON_FILE_BYTES} bytes; it is no such file.",
        )
    return parse_json_object(text, source.name), text


def parse_json_object(text: bytes, name: str) -> dict[str, Any]:
    """Parse JSON that must be an object.

    Raises: ModelError with the reason BadConfig.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = "it nests too deeply" if isinstance(error, RecursionError) else error
        raise ModelError("BadConfig", f"{name} is not JSON: {problem}.") from None
    if not isinstance(document, dict):
        raise ModelError("BadConfig", f"{name} holds no JSON object.")
    return document
