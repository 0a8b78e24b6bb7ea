from collections.abc import Callable
from pathlib import Path

import pytest

from tiny_model import save_tiny


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A family's tiny model, written once; nobody writes to it."""
    folders: dict[str, Path] = {}

    def save(family: str) -> Path:
        if family not in folders:
            folders[family] = tmp_path_factory.mktemp(family)
            save_tiny(folders[family], family)
        return folders[family]

    return save


@pytest.fixture(scope="session")
def tiny(saved: Callable[[str], Path]) -> Path:
    """The tiny Llama."""
    return saved("llama")
