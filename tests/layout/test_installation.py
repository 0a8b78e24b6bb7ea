"""The files that install the operator agree with each other and with the code that applies them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from deployment import BASE, NAMESPACE, OPERATOR, build_overlay

REPOSITORY = Path(__file__).resolve().parents[2]


def read_objects() -> list[dict[str, Any]]:
    kustomization = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    return [
        one
        for file in kustomization["resources"]
        for one in yaml.safe_load_all((BASE / file).read_text())
        if one
    ]


def read_operator() -> dict[str, Any]:
    [found] = [one for one in read_objects() if one["kind"] == "Deployment"]
    return found


def test_everything_namespaced_lies_in_the_operators_namespace() -> None:
    namespaces = {one["metadata"].get("namespace", NAMESPACE) for one in read_objects()}

    assert namespaces == {NAMESPACE}


def test_the_operator_runs_as_an_account_that_has_its_rights() -> None:
    account = read_operator()["spec"]["template"]["spec"]["serviceAccountName"]
    bound = {
        subject["name"]
        for one in read_objects()
        if one["kind"].endswith("RoleBinding")
        for subject in one["subjects"]
    }

    assert bound == {account}


def test_an_overlay_changes_only_what_the_base_has() -> None:
    overlay = build_overlay("base", "localhost/operator:1", "localhost/runtime:1")
    patch = yaml.safe_load(overlay["patches"][0]["patch"])
    [patched] = patch["spec"]["template"]["spec"]["containers"]
    [container] = read_operator()["spec"]["template"]["spec"]["containers"]

    assert patch["metadata"] == {"name": OPERATOR, "namespace": NAMESPACE}
    assert patched["name"] == container["name"]
    assert {one["name"] for one in patched["env"]} <= {one["name"] for one in container["env"]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("allowPrivilegeEscalation", False),
        ("readOnlyRootFilesystem", True),
        ("capabilities", {"drop": ["ALL"]}),
    ],
)
def test_the_operator_is_confined(name: str, value: object) -> None:
    [container] = read_operator()["spec"]["template"]["spec"]["containers"]

    assert container["securityContext"][name] == value
