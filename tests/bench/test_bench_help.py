"""Whoever runs a bench is told what each of its flags is for."""

import os
import re
import sys
from importlib import import_module

import pytest


@pytest.mark.parametrize("name", ["against_peers", "cpu_kernels", "speculative"])
def test_every_flag_is_explained(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A bench sets them for its own process, which this is not.
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit, match="0"):
        import_module(name).main()
    told = capsys.readouterr().out
    flags = re.findall(r"^  (--[^ ]+)(.*(?:\n {6}.*)*)", told, re.MULTILINE)
    assert len(flags) > 7
    words = {flag: re.findall(r"\b[a-z]+\b", re.sub(r"\{.*?\}", "", text)) for flag, text in flags}
    assert [flag for flag, found in words.items() if len(found) < 3] == []


@pytest.mark.parametrize(
    ("name", "given"), [("cpu_kernels", ["--model", "nowhere.gguf"]), ("speculative", ["nowhere"])]
)
def test_a_model_that_is_not_there_is_told_before_anything_is_measured(
    name: str,
    given: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(sys, "argv", [name, *given])
    with pytest.raises(SystemExit, match="2"):
        import_module(name).main()
    assert f"error: {given[-1]} is not there" in capsys.readouterr().err
