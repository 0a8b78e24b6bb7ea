"""What a release consists of: objects that agree with each other and with the code that installs
them."""

import pytest

from chart import Rule, list_rules, render_objects
from deployment import NAMESPACE, OPERATOR

NAMESPACED = 'watch.namespaces=["team-a","team-b"]'
NODES: set[Rule] = {
    (verb, group, kind)
    for verb in ("list", "watch")
    for group, kind in (("", "nodes"), ("resource.k8s.io", "resourceslices"))
}


def find(kind: str, *values: str) -> list[dict]:  # type: ignore[type-arg]
    return [one for one in render_objects(*values) if one["kind"] == kind]


def test_the_operator_has_the_name_that_the_tests_and_the_demo_know() -> None:
    [deployment] = find("Deployment")

    assert deployment["metadata"]["name"] == OPERATOR
    assert deployment["metadata"]["namespace"] == NAMESPACE


@pytest.mark.parametrize("mode", [(), (NAMESPACED,)], ids=["cluster-wide", "namespaced"])
def test_the_operator_runs_as_the_account_that_has_its_rights(mode: tuple[str, ...]) -> None:
    [deployment] = find("Deployment", *mode)
    [account] = find("ServiceAccount", *mode)
    bindings = find("ClusterRoleBinding", *mode) + find("RoleBinding", *mode)

    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == "forebay-operator"
    assert account["metadata"]["name"] == "forebay-operator"
    for binding in bindings:
        [subject] = binding["subjects"]
        assert subject == {
            "kind": "ServiceAccount",
            "name": "forebay-operator",
            "namespace": NAMESPACE,
        }


def test_every_namespace_that_is_served_gets_the_same_rights() -> None:
    roles = {one["metadata"]["namespace"]: one["rules"] for one in find("Role", NAMESPACED)}

    assert set(roles) == {NAMESPACE, "team-a", "team-b"}
    assert roles["team-a"] == roles["team-b"]


def test_a_namespaced_operator_may_do_there_what_the_other_may_do_everywhere() -> None:
    assert list_rules(NAMESPACED) == list_rules()


@pytest.mark.parametrize("mode", [(), (NAMESPACED,)], ids=["cluster-wide", "namespaced"])
def test_the_right_to_see_nodes_can_be_withheld(mode: tuple[str, ...]) -> None:
    assert list_rules(*mode) - list_rules(*mode, "rbac.nodes=false") == NODES


def test_without_nodes_a_namespaced_release_asks_for_nothing_of_the_cluster() -> None:
    narrow = (NAMESPACED, "rbac.nodes=false", "rbac.userRoles=false", "crds.install=false")
    kinds = {one["kind"] for one in render_objects(*narrow)}

    assert kinds == {"ServiceAccount", "Role", "RoleBinding", "Deployment", "Service"}
