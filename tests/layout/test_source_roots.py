"""The layout that keeps `operator/` harmless: the standard library has a module of that name."""

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("operator", "runtime", "kernels")


def find(folder: str, pattern: str) -> list[Path]:
    return [path.relative_to(REPOSITORY) for path in sorted((REPOSITORY / folder).glob(pattern))]


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_a_source_root_holds_packages_only(root: str) -> None:
    assert find(root, "*.py") == []
    assert find(root, "forebay_*/__init__.py") != []


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_no_test_lies_under_a_source_root(root: str) -> None:
    assert find(root, "**/test_*.py") + find(root, "**/conftest.py") == []


@pytest.mark.parametrize("root", ["tests", "e2e"])
def test_tests_are_no_packages(root: str) -> None:
    assert find(root, "**/__init__.py") == []


def test_names_of_test_files_are_unique() -> None:
    names = [path.name for root in ("tests", "e2e") for path in find(root, "**/test_*.py")]

    assert sorted(names) == sorted(set(names))
