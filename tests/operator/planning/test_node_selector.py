"""A pod's own choice of nodes, read as the scheduler reads it."""

from typing import Any

import pytest

from forebay_operator.planning.nodes.selector import may_run_on

NODE = {"metadata": {"name": "a", "labels": {"pool": "gpu", "gen": "4"}}}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": rule}}


def labelled(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "may"),
    [
        ({}, True),
        ({"nodeSelector": {"pool": "gpu"}}, True),
        ({"nodeSelector": {"pool": "cpu"}}, False),
        (required(labelled("pool", "In", "gpu", "cpu")), True),
        (required(labelled("pool", "NotIn", "gpu")), False),
        (required(labelled("zone", "NotIn", "gpu")), True),
        (required(labelled("pool", "Exists")), True),
        (required(labelled("pool", "DoesNotExist")), False),
        (required(labelled("gen", "Gt", "3")), True),
        (required(labelled("gen", "Lt", "4")), False),
        (required(labelled("zone", "Lt", "4")), False),
        (required(labelled("pool", "In", "x"), labelled("gen", "Gt", "3")), True),
        (required({}), False),
        (
            required(
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
            ),
            False,
        ),
    ],
    ids=[
        "no choice",
        "a selector that holds",
        "a selector that does not",
        "one of several values",
        "none of these values",
        "none of these values, without the label",
        "a label that is there",
        "a label that must not be there",
        "more than",
        "not less than",
        "less than, without the label",
        "the second term",
        "a term that asks for nothing",
        "another node by name",
    ],
)
def test_a_node_is_chosen_or_not(spec: dict[str, Any], may: bool) -> None:
    assert may_run_on(spec, NODE) is may
