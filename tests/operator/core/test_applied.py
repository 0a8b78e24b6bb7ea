"""A child is known to be in order by what stands on it, so that a new operator writes nothing."""

import copy
from typing import Any

import pytest

from forebay_operator.applied import ANNOTATION, check, holds, remember, stamp

MANIFEST = {
    "kind": "Deployment",
    "metadata": {"name": "llama", "labels": {"a": "b"}},
    "spec": {"replicas": 1, "containers": [{"name": "runtime", "args": ["--port", "8000"]}]},
}


def served(version: int = 1, **metadata: Any) -> dict[str, Any]:
    """The object as an API server makes it of the stamped manifest: with more in it."""
    found = copy.deepcopy(dict(stamp(MANIFEST)))
    found["metadata"] |= {"uid": "u", "resourceVersion": str(version), **metadata}
    found["spec"]["containers"][0]["imagePullPolicy"] = "Always"
    found["status"] = {"replicas": version}
    return found


def test_what_another_process_applied_is_in_order() -> None:
    assert check(MANIFEST, served(), None) == remember(MANIFEST, served())


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found["metadata"]["annotations"].pop(ANNOTATION),
        lambda found: found["metadata"]["annotations"].update({ANNOTATION: "of another"}),
        lambda found: found["metadata"]["labels"].clear(),
        lambda found: found["spec"].update(replicas=2),
        lambda found: found["spec"]["containers"][0]["args"].append("--more"),
        lambda found: found["spec"]["containers"].append({"name": "more"}),
        lambda found: found["spec"].pop("containers"),
    ],
    ids=[
        "nothing says what was applied",
        "another manifest was applied",
        "a label was taken away",
        "a number was changed",
        "an item was added to a list",
        "a container was added",
        "a part was taken away",
    ],
)
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
def test_what_was_changed_since_is_not(change: Any, is_known: bool) -> None:
    found = served(2)
    change(found)
    known = remember(MANIFEST, served(1)) if is_known else None
    assert check(MANIFEST, found, known) is None


def test_a_status_and_bookkeeping_change_nothing() -> None:
    known = remember(MANIFEST, served(1))
    found = served(2, generation=7, managedFields=[])
    assert check(MANIFEST, found, known) == remember(MANIFEST, found)


def test_what_others_add_beside_it_changes_nothing() -> None:
    known = remember(MANIFEST, served(1))
    found = served(2)
    found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "1"
    found["spec"]["minReadySeconds"] = 3
    assert check(MANIFEST, found, known) == remember(MANIFEST, found)


def test_what_the_api_server_writes_in_another_way_is_in_order_until_it_changes() -> None:
    found = served(1)
    found["spec"]["replicas"] = "one"
    known = remember(MANIFEST, found)
    later = copy.deepcopy(found)
    later["metadata"]["resourceVersion"] = "2"
    assert check(MANIFEST, later, known) == remember(MANIFEST, later)
    later["metadata"] |= {"resourceVersion": "3", "labels": {"a": "b", "c": "d"}}
    assert check(MANIFEST, later, known) is None


def test_a_new_wish_is_no_longer_what_was_applied() -> None:
    wish = {**MANIFEST, "spec": {"replicas": 2}}
    assert check(wish, served(), remember(MANIFEST, served())) is None
    assert check(wish, served(), None) is None


def test_what_a_namesake_was_says_nothing_of_its_successor() -> None:
    known = remember(MANIFEST, served(9, uid="of the first"))
    changed = {**served(1), "spec": {}}
    assert check(MANIFEST, changed, known) is None
    assert check(MANIFEST, served(1), known) == remember(MANIFEST, served(1))


def test_an_older_version_than_the_one_applied_is_no_news() -> None:
    known = remember(MANIFEST, served(9))
    assert check(MANIFEST, {**served(1), "spec": {}}, known) == known


@pytest.mark.parametrize(
    ("found", "wanted", "held"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": {"b": 1}}, {"a": {}}, True),
        ({}, {"a": {}}, False),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": [{"n": 1, "m": 2}]}, {"a": [{"n": 1}]}, True),
    ],
)
def test_more_than_was_wished_for_is_fine_less_is_not(found: Any, wanted: Any, held: bool) -> None:
    assert holds(found, wanted) is held
