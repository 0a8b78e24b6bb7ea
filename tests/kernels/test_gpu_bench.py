"""bench/gpu.py where no GPU is: all of it runs, and needs nothing but torch, Triton and numpy."""

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = {"torch", "triton", "numpy"}
TORCHS_OWN = {"jinja2", "typing-extensions"}
PATIENT = ("--budget-seconds", "1500")
"""However busy the machine is."""
MODULES = {"nvidia-ml-py": "pynvml"}

BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ImportError(name + " is not installed on the machine with the GPU")

sys.meta_path.insert(0, Blocker())
"""


def modules_of_the_runtime() -> set[str]:
    """What `forebay serve` needs installed, but for what the benchmark may use."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    runtime = extras["optional-dependencies"]["runtime"]
    names = {re.split(r"[<>=;]", requirement)[0].strip() for requirement in runtime}
    return {MODULES.get(name, name.replace("-", "_")) for name in names - NEEDED - TORCHS_OWN}


@pytest.fixture
def bare_site(tmp_path):
    """A folder that makes Python refuse what is not there on a machine for measuring."""
    folder = tmp_path / "site"
    folder.mkdir()
    blocked = modules_of_the_runtime()
    assert "safetensors" in blocked
    (folder / "sitecustomize.py").write_text(BLOCKED.format(blocked=blocked))
    return folder


def run_bench(site: Path, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "bench/gpu.py"), "--tiny", "--out", str(out), *arguments],
        env={
            **os.environ,
            "PYTHONPATH": str(site),
            "TRITON_INTERPRET": "1",
            "FOREBAY_KERNELS": "triton",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def check_that_it_runs(site: Path, out: Path, *arguments: str) -> None:
    done = run_bench(site, out, *PATIENT, *arguments)

    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(out.read_text())
    assert document["failed"] == {}
    assert document["is_tiny"] is True
    assert {figure["verdict"] for figure in document["figures"]} == {"met", ""}


def test_it_runs_without_what_a_server_needs(bare_site, tmp_path):
    parts = ("rates", "attention", "products", "whole_model:SmolLM2-135M")

    check_that_it_runs(bare_site, tmp_path / "out.json", "--parts", *parts)


@pytest.mark.long
def test_all_of_it_runs(bare_site, tmp_path):
    check_that_it_runs(bare_site, tmp_path / "out.json")


def test_a_part_that_fails_costs_only_its_own_figures(bare_site, tmp_path):
    """Attention is measured against the bandwidth, which only `rates` knows."""
    out = tmp_path / "out.json"

    done = run_bench(bare_site, out, *PATIENT, "--parts", "attention", "numbers")

    assert done.returncode == 1
    document = json.loads(out.read_text())
    assert list(document["failed"]) == ["attention"]
    assert "KeyError" in document["failed"]["attention"]
    assert any("error of" in figure["name"] for figure in document["figures"])


def test_no_part_starts_when_the_time_is_up(bare_site, tmp_path):
    out = tmp_path / "out.json"

    done = run_bench(bare_site, out, "--budget-seconds", "0")

    assert done.returncode == 1
    document = json.loads(out.read_text())
    assert document["figures"] == []
    assert set(document["failed"].values()) == {"was not started: the time was up"}


def test_a_folder_that_is_not_there_is_made_before_anything_is_measured(bare_site, tmp_path):
    out = tmp_path / "results/new/out.json"

    run_bench(bare_site, out, "--budget-seconds", "0", "--parts", "whole_model")

    failed = json.loads(out.read_text())["failed"]
    assert [name.partition(":")[0] for name in failed] == ["whole_model"] * 3


def test_a_file_that_cannot_be_written_is_told_at_once(bare_site, tmp_path):
    (tmp_path / "file").touch()

    done = run_bench(bare_site, tmp_path / "file/out.json", "--parts", "rates")

    assert done.returncode == 1
    assert "file/out.json cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_part_that_hangs_is_ended_with_what_it_started(tmp_path, monkeypatch):
    """Its own process has its output's pipe too, which nobody would close before it ends."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    gpu = importlib.import_module("gpu")
    part = "import subprocess; subprocess.run(['sleep', '600'])"
    monkeypatch.setattr(gpu, "__file__", str(tmp_path / "part.py"))
    (tmp_path / "part.py").write_text(part)
    options = argparse.Namespace(tiny=False, out=tmp_path / "out.json")

    came, problem = gpu._in_a_process(gpu.PARTS[0], [], 0.5, options)

    assert came == []
    assert problem.startswith("took more than")
