"""The same model by the CPU's own kernels and by torch's operators, in one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine_play import load_engine
from forebay_kernels.cpu.library import native
from forebay_runtime.engine import Engine


@contextmanager
def torchs_operators() -> Iterator[None]:
    """Let engines that are loaded meanwhile do without the CPU's own kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOREBAY_KERNELS", "torch")
        native.cache_clear()
        yield
    native.cache_clear()


def load_torch_engine(path: Path, **flags: Any) -> Engine:
    """An engine that runs torch's operators."""
    with torchs_operators():
        return load_engine(path, **flags)


def load_native_engine(path: Path, **flags: Any) -> Engine:
    """An engine whose steps are a program's, which is checked."""
    engine = load_engine(path, **flags)
    runner: Any = engine.runner
    if not runner.is_native:
        raise AssertionError("the model was not recorded")
    return engine
