"""Where a real model of the tests lies: SmolLM2-135M-Instruct as Q4_1 GGUF, by `make model`."""

from pathlib import Path

from model import SMOLLM2


def smollm2_path() -> Path:
    """Return the GGUF file.

    Raises: FileNotFoundError that names the command which fetches it.
    """
    if not SMOLLM2.path.is_file():
        raise FileNotFoundError(f"{SMOLLM2.path} is missing; run `make model`")
    return SMOLLM2.path
