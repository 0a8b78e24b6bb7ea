"""Whoever reads a reason on an object finds it in the docs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLANNING = ROOT / "operator/forebay_operator/planning"
SAID = re.compile(
    r'(?:Cause\(|Condition\(\s*"\w+",\s*"\w+",|failed\(\s*"\w+",\s*Cause\()\s*"([A-Z]\w+)"'
)
REFUSALS = re.compile(r'^ *"([A-Z][A-Za-z]+)",$|", "([A-Z][A-Za-z]+)", "', re.MULTILINE)


def reasons() -> list[str]:
    """Every reason that a condition can have by the operator's own words."""
    code = "".join(path.read_text() for path in PLANNING.rglob("*.py"))
    table = REFUSALS.findall((PLANNING / "causes/refusals.py").read_text())
    return sorted({*SAID.findall(code), *(first or second for first, second in table)})


@pytest.mark.parametrize("reason", reasons())
def test_the_docs_explain(reason: str) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert any(f"`{reason}`" in page.read_text() for page in pages)
