"""When the demo calls a service ready, and what it says until then."""

from typing import Any

import pytest

from readiness import NotReadyError, is_true, wait_until_ready


def service(ready: str, generation: int = 1, observed: int = 1) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "reason": "Why", "observedGeneration": observed}
    return {"metadata": {"generation": generation}, "status": {"conditions": [condition]}}


@pytest.mark.parametrize(
    ("found", "ready"),
    [
        pytest.param(service("True"), True, id="this generation"),
        pytest.param(service("True", generation=2), False, id="an older generation"),
        pytest.param(service("False"), False, id="not ready"),
        pytest.param({"metadata": {"generation": 1}}, False, id="no status yet"),
        pytest.param({}, False, id="no such service"),
    ],
)
def test_ready_speaks_of_the_spec_as_it_is_now(found: dict[str, Any], ready: bool) -> None:
    assert is_true(found, "Ready") is ready


class FakeKubectl:
    """Answers each `get` with the next object, and the last one for ever."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self._objects = list(objects)

    def get(self, *_: str) -> dict[str, Any]:
        return self._objects.pop(0) if len(self._objects) > 1 else self._objects[0]


def test_a_condition_is_said_when_it_changes_and_not_again() -> None:
    lines: list[str] = []
    kubectl: Any = FakeKubectl(service("False"), service("False"), service("True"))

    wait_until_ready(kubectl, "name", "namespace", 60, lines.append)

    assert [line.split()[0] for line in lines] == ["Ready=False", "Ready=True"]


def test_who_waits_too_long_hears_what_was_last_said() -> None:
    kubectl: Any = FakeKubectl(service("False"))

    with pytest.raises(NotReadyError, match="Ready=False Why"):
        wait_until_ready(kubectl, "name", "namespace", 0.01, print)
