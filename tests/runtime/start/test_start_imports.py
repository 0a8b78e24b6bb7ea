"""A start on a CPU imports what it needs and no more: every import is time before the first answer
and memory for as long as the server lives."""

import json
import subprocess
import sys

import pytest

from tiny_model import save_tiny

START = """
import sys

import torch, fastapi, numpy

given = set(sys.modules)
import json
from pathlib import Path

import forebay_runtime.server.process
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.server import loader

engine = build_engine(EngineConfig(Path(sys.argv[1]), device="cpu", max_model_len=64))
engine.warm_up()
print(json.dumps(sorted(set(sys.modules) - given)))
"""
OURS = {"forebay_budget", "forebay_kernels", "forebay_runtime"}
SMALL = {
    "click",
    "h11",
    "httptools",
    "jinja2",
    "llguidance",
    "markupsafe",
    "numpy",
    "prometheus_client",
    "safetensors",
    "starlette",
    "tokenizers",
    "uvicorn",
}
"""What a server needs beside torch, fastapi and numpy; each comes in well under 0.1 s."""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """All modules of a process that has warmed an engine up, less what torch and fastapi bring."""
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder)
    started = (sys.executable, "-c", START, folder)
    done = subprocess.run(started, capture_output=True, text=True, check=True)
    modules: list[str] = json.loads(done.stdout)
    return modules


def test_a_start_on_a_cpu_imports_no_more_packages_than_it_needs(imported: list[str]) -> None:
    names = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names
    packages = {name for name in names if not name.startswith("_")}

    assert packages - OURS <= SMALL


def test_a_start_on_a_cpu_imports_nothing_of_torch_that_torch_did_not(imported: list[str]) -> None:
    assert [name for name in imported if name.startswith("torch.")] == []


def test_a_start_on_a_cpu_imports_no_kernel_of_a_gpu(imported: list[str]) -> None:
    kernels = "forebay_kernels.gpu.products", "forebay_kernels.gpu.sampling"

    assert [name for name in imported if name.startswith(kernels)] == []
