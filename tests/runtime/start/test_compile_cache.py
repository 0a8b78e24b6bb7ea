"""Where compiled kernels are kept: apart by all that they depend on, and never in the way."""

import logging
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from forebay_runtime.start.compile_cache import CacheKey, use_compile_cache

_KEY = CacheKey("NVIDIA H200 sm_90", {"torch": "2.11.0+cu130", "triton": "3.6.0"}, "heads=32")


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "where it was"))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(_KEY, gpu="NVIDIA H100 sm_90"), id="another GPU"),
        pytest.param(
            replace(_KEY, versions={**_KEY.versions, "triton": "3.7.0"}), id="another version"
        ),
        pytest.param(replace(_KEY, configuration="heads=16"), id="another configuration"),
    ],
)
def test_what_compiled_kernels_depend_on_has_a_folder_of_its_own(other: CacheKey) -> None:
    assert other.folder != _KEY.folder


def test_a_folders_name_says_what_it_is_for() -> None:
    assert _KEY.folder.startswith("NVIDIA-H200-sm_90_torch-2.11.0+cu130_triton-3.6.0_")
    assert "/" not in replace(_KEY, gpu="a/b").folder


def test_triton_keeps_there_what_it_compiles(tmp_path: Path) -> None:
    folder = use_compile_cache(tmp_path / "not" / "there yet", _KEY)
    assert os.environ["TRITON_CACHE_DIR"] == str(folder)
    assert folder == tmp_path / "not" / "there yet" / _KEY.folder
    assert list(folder.iterdir()) == []


def test_without_a_folder_the_choice_is_tritons(tmp_path: Path) -> None:
    assert use_compile_cache(None, _KEY) == tmp_path / "where it was"
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "where it was")


@pytest.mark.parametrize("is_asked", [True, False], ids=["the flag's", "Triton's own"])
def test_a_folder_that_takes_nothing_is_said_once_and_served_without(
    is_asked: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "full").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "full"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with caplog.at_level(logging.WARNING):
        folder = use_compile_cache(tmp_path / "full" if is_asked else None, _KEY)
    [line] = caplog.messages
    assert f"folder={tmp_path / 'full'}" in line
    assert os.environ["TRITON_CACHE_DIR"] == str(folder)
    (folder / "kernel").write_text("can be written")
