"""Where the real model of the tests lies: SmolLM2-135M-Instruct as Q4_1 GGUF, by `make model`."""

from pathlib import Path

from model import FILE, FOLDER


def smollm2_path() -> Path:
    """Return the GGUF file.

    Raises: FileNotFoundError that names the command which fetches it.
    """
    path = FOLDER / FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; run `make model`")
    return path
