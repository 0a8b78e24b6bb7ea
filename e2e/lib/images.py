"""Which tag the current source's images have: a digest of all that goes into them.

An unchanged source keeps its tag, so that nothing is built, moved or rolled out again.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from home import REPOSITORY

_SHARED = (
    "Containerfile",
    ".dockerignore",
    "constraints.txt",
    "pyproject.toml",
    "LICENSE",
    "hatch_build.py",
)
_SOURCES = {
    "operator": (*_SHARED, "operator", "runtime/forebay_budget"),
    "runtime": (*_SHARED, "runtime", "kernels"),
}

_BUILT = {"__pycache__", "_native.so", "_objects"}
"""What of the sources' folders is built, and goes into no image."""


def image_tag(target: str, repository: Path = REPOSITORY) -> str:
    """Return the image's name and tag, for a target of the Containerfile."""
    digest = hashlib.sha256()
    for file in sorted(_find_sources(target, repository)):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(repository)} {len(content)}\n".encode() + content)
    return f"localhost/forebay-{target}:{digest.hexdigest()[:12]}"


def _find_sources(target: str, repository: Path) -> Iterator[Path]:
    for source in _SOURCES[target]:
        path = repository / source
        if path.is_file():
            yield path
        for file in path.rglob("*"):
            if file.is_file() and not _BUILT.intersection(file.parts):
                yield file
