"""Tags of images follow what is in them: an unchanged source is never built or rolled out again."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bring_up import build_images
from images import image_tag

REPOSITORY = Path(__file__).resolve().parents[2]
CONTENTS = ("operator", "runtime", "kernels", "pyproject.toml", "constraints.txt", "Containerfile")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of what images are built from."""
    for name in CONTENTS:
        path = REPOSITORY / name
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, tmp_path / name)
    return tmp_path


def append(path: str) -> Callable[[Path], None]:
    def change(source: Path) -> None:
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        with (source / path).open("a") as file:
            file.write("# changed\n")

    return change


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        pytest.param("operator/forebay_operator/main.py", {"operator"}, id="the operator"),
        pytest.param("runtime/forebay_runtime/cli.py", {"runtime"}, id="the runtime"),
        pytest.param("kernels/forebay_kernels/__init__.py", {"runtime"}, id="the kernels"),
        pytest.param("runtime/forebay_budget/cli.py", {"operator", "runtime"}, id="the budget"),
        pytest.param("constraints.txt", {"operator", "runtime"}, id="the versions"),
        pytest.param("Containerfile", {"operator", "runtime"}, id="how they are built"),
        pytest.param("operator/forebay_operator/new.py", {"operator"}, id="a new file"),
        pytest.param("README.md", set(), id="prose"),
        pytest.param("operator/forebay_operator/__pycache__/a.pyc", set(), id="bytecode"),
    ],
)
def test_a_change_gives_new_tags_to_the_images_that_hold_it(
    source: Path, path: str, changed: set[str]
) -> None:
    targets = ("operator", "runtime")
    before = {target: image_tag(target, source) for target in targets}

    append(path)(source)

    after = {target: image_tag(target, source) for target in targets}
    assert {target for target in targets if after[target] != before[target]} == changed


def test_what_takes_minutes_to_build_says_so_as_it_begins(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Docker:
        """Says when it is asked to build."""

        def build(self, target: str, tag: str) -> None:
            print(f"building {target}")

    build_images(Docker())  # type: ignore[arg-type]
    told = capsys.readouterr().out
    assert re.search(r"Image of the runtime .*about \d+ minutes.*\nbuilding runtime", told)
