"""The CPU kernels' library: built from its sources, and told which instructions to use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from forebay_kernels.cpu import build
from forebay_kernels.cpu.library import (
    ISA_VARIABLE,
    KERNELS_VARIABLE,
    isa_in_use,
    isa_names,
    native,
)

_PRINT_ISA = "from forebay_kernels.cpu.library import *; print(isa_in_use(native()))"


def _isa_of_a_process(asked: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, ISA_VARIABLE: asked, "FOREBAY_KERNELS": ""}
    return subprocess.run(
        [sys.executable, "-c", _PRINT_ISA], env=env, capture_output=True, text=True
    )


def test_the_library_was_built_where_there_is_a_compiler() -> None:
    build.find_compiler()
    assert native() is not None


def test_any_processor_runs_the_portable_instructions() -> None:
    library = native()
    assert library is not None
    names = isa_names(library)
    assert list(names) == list(build.ISAS)
    assert names["portable"]


def test_the_most_that_the_processor_has_is_used() -> None:
    library = native()
    assert library is not None
    assert (
        isa_in_use(library)
        == [name for name, is_usable in isa_names(library).items() if is_usable][-1]
    )


def test_a_set_is_forced_by_its_name() -> None:
    assert _isa_of_a_process("portable").stdout.strip() == "portable"


def test_an_unknown_set_is_refused_by_what_is_possible() -> None:
    assert "possible here are portable" in _isa_of_a_process("mmx").stderr


def test_unknown_kernels_are_refused_by_what_is_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KERNELS_VARIABLE, "tourch")
    with pytest.raises(ValueError, match="FOREBAY_KERNELS=tourch: there are no such kernels"):
        native.__wrapped__()


def test_what_leaves_them_out_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setenv(KERNELS_VARIABLE, "torch")
    assert native.__wrapped__() is None
    assert "FOREBAY_KERNELS=torch leaves the CPU's own kernels out" in caplog.text


def test_without_a_compiler_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(build.CannotBuild, match="CXX names, no-such-compiler"):
        build.build()
