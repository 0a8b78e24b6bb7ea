"""The pinned versions: names and versions only, and one for all that is asked for."""

import re
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LINES = (REPOSITORY / "constraints.txt").read_text().splitlines()


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_line_is_a_name_and_a_version() -> None:
    pin = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.+!]*")

    assert [line for line in LINES if not pin.fullmatch(line)] == []


def test_every_name_is_pinned_once() -> None:
    names = [normal(line.partition("==")[0]) for line in LINES]

    assert sorted(names) == sorted(set(names))


def test_everything_that_the_project_asks_for_is_pinned() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    asked = project["build-system"]["requires"] + [
        one for extra in project["project"]["optional-dependencies"].values() for one in extra
    ]
    names = {normal(re.split(r"[<>=;\[ ]", one)[0]) for one in asked}

    assert names - {normal(line.partition("==")[0]) for line in LINES} == set()
