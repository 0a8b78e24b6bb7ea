"""What a wheel of this source holds: the four packages, and nothing of their parent folders."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = {"forebay_operator", "forebay_budget", "forebay_runtime", "forebay_kernels"}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The wheel's files."""
    out = tmp_path_factory.mktemp("wheel")
    command = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out)
    subprocess.run([*command, REPOSITORY], check=True, capture_output=True)
    return zipfile.ZipFile(next(out.glob("*.whl"))).namelist()


def test_a_wheel_holds_the_four_packages_and_its_metadata(names: list[str]) -> None:
    tops = {name.split("/")[0] for name in names}

    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_each_package_says_that_it_is_typed(names: list[str], package: str) -> None:
    assert f"{package}/py.typed" in names


def test_a_wheel_carries_the_licence(names: list[str]) -> None:
    assert any(name.endswith("/licenses/LICENSE") for name in names)
