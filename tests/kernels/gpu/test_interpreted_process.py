"""Tests of kernels run where Triton interprets, and what became of each is told in the one run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import interpreted

TESTS = """
import os
import pytest

@pytest.mark.interpreted
@pytest.mark.parametrize("number", [1, 2])
def test_is_one(number):
    assert os.environ["TRITON_INTERPRET"] == "1"
    assert number == 1

def test_that_needs_no_interpreter():
    assert "TRITON_INTERPRET" not in os.environ

@pytest.mark.interpreted
def test_that_ends_its_process():
    print("so it went", flush=True)
    os._exit(3)
"""


@pytest.mark.interpreted
def test_kernels_are_defined_for_the_interpreter() -> None:
    import triton

    @triton.jit
    def kernel(x: object) -> None:
        pass

    assert "Interpreted" in type(kernel).__name__


def test_failures_and_a_lost_process_are_told_where_the_run_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    interpreted: elsewhere\n")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["interpreted"]\n')
    (tmp_path / "test_some.py").write_text(TESTS)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "--capture=sys"],
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(interpreted.__file__).parent),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
    )
    outcomes = {
        test: outcome
        for outcome, test in re.findall(r"^(PASSED|FAILED) test_some.py::(\S+)", run.stdout, re.M)
    }
    assert outcomes == {
        "test_is_one[1]": "PASSED",
        "test_is_one[2]": "FAILED",
        "test_that_needs_no_interpreter": "PASSED",
        "test_that_ends_its_process": "FAILED",
    }
    assert "assert 2 == 1" in run.stdout
    assert re.search(r"ended before this one. It wrote:\n.*so it went", run.stdout, re.S)
