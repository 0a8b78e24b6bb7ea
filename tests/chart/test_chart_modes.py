"""What a release may do and whom it serves: everywhere, or in some namespaces; and what people may
do."""

from pathlib import Path

import pytest

from api_server import ApiServer
from audit import list_used
from chart import list_rules
from chart_release import Release, apply_service, wait_ready
from operator_process import wait_until

pytestmark = pytest.mark.component

CLUSTER_SCOPED = {"nodes", "resourceslices"}


def count_deployments(server: ApiServer, namespace: str) -> int:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    return len(server.request("GET", path)[1]["items"])


def test_a_namespaced_release_serves_its_namespaces_by_what_it_was_granted(
    release: Release, team: str, tmp_path: Path
) -> None:
    server = release.server
    narrow = Release(server, "narrow", "narrow-system")
    server.kubectl("create", "namespace", f"{team}-other")
    said = narrow.upgrade(f"--set=watch.namespaces={{{team}}}", "--set=rbac.nodes=false")
    assert f"serves the namespaces {team}." in said and "spec.vram.gpuMemory" in said
    apply_service(server, f"{team}-other", "theirs")
    apply_service(server, team, "ours")

    with narrow.operating(tmp_path / "log") as operator:
        wait_ready(server, team, "ours")

    assert count_deployments(server, team) == 1
    assert count_deployments(server, f"{team}-other") == 0
    used = list_used(server, "system:serviceaccount:narrow-system:narrow-operator")
    asked_in_vain = {resource for _, _, resource in used - list_rules("rbac.nodes=false")}
    assert asked_in_vain <= CLUSTER_SCOPED
    assert "Traceback" not in operator.log


GRANTED = ("view", "edit", "admin")


def may(server: ApiServer, namespace: str, role: str, verb: str, resource: str) -> bool:
    """Whether somebody who holds a role of the namespace may do something there."""
    attributes = {"namespace": namespace, "verb": verb, "group": "forebay.dev"}
    attributes["resource"], _, attributes["subresource"] = resource.partition("/")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": f"{role}-of-it", "resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(server.request("POST", path, review)[1]["status"]["allowed"])


def test_the_roles_that_people_hold_cover_services_and_not_who_is_allowed_how_much(
    release: Release, team: str
) -> None:
    server = release.server
    release.upgrade()
    for role in (*GRANTED, "forebay-quotas"):
        binding = (f"{role}-of-it", f"--clusterrole={role}", f"--user={role}-of-it")
        server.kubectl("create", "rolebinding", *binding, "-n", team)
    wait_until(
        "Roles are aggregated",
        lambda: may(server, team, "admin", "create", "inferenceservices"),
    )

    def holders(verb: str, resource: str) -> list[str]:
        roles = (*GRANTED, "forebay-quotas")
        return [role for role in roles if may(server, team, role, verb, resource)]

    assert holders("get", "inferenceservices") == ["view", "edit", "admin"]
    assert holders("create", "inferenceservices") == ["edit", "admin"]
    assert holders("patch", "inferenceservices/scale") == ["edit", "admin"]
    assert holders("patch", "inferenceservices/status") == []
    assert holders("get", "vramquotas") == ["view", "edit", "admin", "forebay-quotas"]
    assert holders("patch", "vramquotas") == ["forebay-quotas"]
