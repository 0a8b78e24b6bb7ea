"""What a wheel of this source holds: the four packages, nothing of their parent folders, and where
there is a compiler the kernels of a CPU."""

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = {"forebay_operator", "forebay_budget", "forebay_runtime", "forebay_kernels"}
LIBRARY = "forebay_kernels/cpu/_native.so"
ASK_FOR_KERNELS = """
from forebay_kernels.cpu import library

found = library.native()
print(library.__file__)
print("torch" if found is None else library.isa_in_use(found))
"""


@dataclass(frozen=True)
class Wheel:
    """A wheel, and what its build said."""

    path: Path
    output: str

    @property
    def names(self) -> list[str]:
        return zipfile.ZipFile(self.path).namelist()


def build_wheel(out: Path, **environment: str) -> Wheel:
    command = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out)
    variables = {name: value for name, value in os.environ.items() if name != "CXX"}
    done = subprocess.run(
        [*command, REPOSITORY],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=variables | environment,
    )
    return Wheel(next(out.glob("*.whl")), done.stdout)


def run_unpacked(wheel: Wheel, folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the wheel's packages, and with the packages of this environment."""
    zipfile.ZipFile(wheel.path).extractall(folder)
    return subprocess.run(
        (sys.executable, "-c", program),
        check=True,
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """Built where there is a compiler."""
    return build_wheel(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """Built where there is none."""
    return build_wheel(
        tmp_path_factory.mktemp("bare"), PATH=str(tmp_path_factory.mktemp("nothing"))
    )


def test_a_wheel_holds_the_four_packages_and_its_metadata(compiled: Wheel) -> None:
    tops = {name.split("/")[0] for name in compiled.names}

    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_each_package_says_that_it_is_typed(compiled: Wheel, package: str) -> None:
    assert f"{package}/py.typed" in compiled.names


def test_a_wheel_carries_the_licence(compiled: Wheel) -> None:
    assert any(name.endswith("/licenses/LICENSE") for name in compiled.names)


def test_a_wheel_holds_nothing_that_building_leaves_behind(compiled: Wheel) -> None:
    assert [name for name in compiled.names if name.endswith(".o") or "__pycache__" in name] == []


def test_a_wheel_built_with_a_compiler_has_the_kernels_and_says_for_which_machines(
    compiled: Wheel, tmp_path: Path
) -> None:
    found, form = run_unpacked(compiled, tmp_path, ASK_FOR_KERNELS).stdout.split()

    assert LIBRARY in compiled.names
    assert "-py3-none-linux_" in compiled.path.name
    assert Path(found).is_relative_to(tmp_path)
    assert form != "torch"


def test_a_wheel_built_without_a_compiler_is_whole_says_why_and_runs_on_torch(
    bare: Wheel, compiled: Wheel, tmp_path: Path
) -> None:
    done = run_unpacked(bare, tmp_path, ASK_FOR_KERNELS)

    assert set(compiled.names) - set(bare.names) == {LIBRARY}
    assert bare.path.name.endswith("-py3-none-any.whl")
    assert "without its CPU kernels. There is no C++ compiler" in bare.output
    assert done.stdout.split()[1] == "torch"
    assert "Install g++ or clang++" in done.stderr
