"""Where the real model of the tests lies: SmolLM2-135M-Instruct as Q4_1 GGUF, by `make model`."""

import os
from pathlib import Path


def smollm2_path() -> Path:
    """Return the GGUF file.

    Raises: FileNotFoundError that names the command which fetches it.
    """
    home = Path(os.environ.get("FOREBAY_HOME", Path.home() / ".cache/forebay"))
    path = home / "models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; run `make model`")
    return path
