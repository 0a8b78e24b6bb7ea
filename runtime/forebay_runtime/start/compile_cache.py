"""Where compiled kernels are kept from one start to the next, and for other pods and ranks.

Triton names what it compiles by its source and writes it whole or not at all, so that several
processes may share a folder. Imports neither torch nor Triton: Triton looks for its folder in the
environment, when it compiles.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

_TRITON_DIR = "TRITON_CACHE_DIR"


@dataclass(frozen=True)
class CacheKey:
    """What compiled kernels depend on.

    gpu: its name and compute capability. versions: of each program that takes part, by its name.
    configuration: whatever else; only equal texts share a folder.
    """

    gpu: str
    versions: Mapping[str, str]
    configuration: str

    @property
    def folder(self) -> str:
        """A name for a folder: to be read by people, with the configuration as a hash."""
        versions = (f"{name}-{version}" for name, version in self.versions.items())
        words = "_".join((self.gpu, *versions))
        digest = hashlib.sha256(self.configuration.encode()).hexdigest()
        return f"{re.sub('[^A-Za-z0-9_.+-]', '-', words)}_{digest[:12]}"


def use_compile_cache(root: Path | None, key: CacheKey) -> Path:
    """Have Triton keep what it compiles under root; the folder that it now has.

    Where root is not given Triton's own choice stands; where nothing can be written, that is said
    and a folder that goes with the process takes its place.
    """
    folder = _tritons_own() if root is None else root / key.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return use_passing_cache(root or folder, error)
    os.environ[_TRITON_DIR] = str(folder)
    return folder


def _tritons_own() -> Path:
    """Where it would keep things by itself; a user without a home folder gets none."""
    return Path(os.environ.get(_TRITON_DIR) or os.path.expanduser("~/.triton/cache"))


def use_passing_cache(root: Path, error: OSError) -> Path:
    """Have Triton keep what it compiles in a new folder of this pod, as root takes nothing."""
    folder = Path(tempfile.mkdtemp(prefix="forebay-compiled-"))
    os.environ[_TRITON_DIR] = str(folder)
    logger.warning(
        "Could not write to the compile cache, the next start compiles again folder=%s error=%s",
        root,
        error.strerror or error,
    )
    return folder
