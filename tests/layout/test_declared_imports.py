"""What the source imports, the project asks for: no image lives on what others happen to bring."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
OURS = {"forebay_operator", "forebay_budget", "forebay_runtime", "forebay_kernels"}
ROOTS = {"operator": ("operator",), "runtime": ("runtime", "kernels")}
"""The source roots whose imports an extra has to cover."""
IMPORTED_AS = {"nvidia_ml_py": "pynvml"}


def find_imports(root: str) -> set[str]:
    nodes = [
        node
        for file in (REPOSITORY / root).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
    ]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.split(".")[0] for name in names} - sys.stdlib_module_names - OURS


def read_extra(extra: str) -> set[str]:
    """Return the names that an extra asks for, as they are imported."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    asked = project["optional-dependencies"][extra]
    names = {re.split(r"[<>=;\[ ]", one)[0].replace("-", "_") for one in asked}
    return {IMPORTED_AS.get(name, name) for name in names}


@pytest.mark.parametrize("extra", sorted(ROOTS))
def test_an_extra_covers_what_its_source_imports(extra: str) -> None:
    imported = set().union(*(find_imports(root) for root in ROOTS[extra]))

    assert imported - read_extra(extra) == set()


@pytest.mark.parametrize(
    ("extra", "name"),
    [
        ("operator", "kopf"),
        ("operator", "kubernetes"),
        ("runtime", "torch"),
        ("runtime", "fastapi"),
        ("runtime", "uvicorn"),
        ("runtime", "prometheus_client"),
        ("runtime", "pydantic"),
    ],
)
def test_what_the_project_is_to_be_built_on_is_what_it_is_built_on(extra: str, name: str) -> None:
    assert name in read_extra(extra)
    assert name in set().union(*(find_imports(root) for root in ROOTS[extra]))
