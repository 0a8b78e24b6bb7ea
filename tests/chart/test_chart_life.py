"""Installing, upgrading and uninstalling: what serves goes on serving."""

from pathlib import Path

import pytest

from api_server import ApiServer
from chart import ChartError, render
from chart_release import Release, apply_service, copy_chart, package, wait_ready
from operator_process import wait_until

pytestmark = pytest.mark.component

CRD = "crd/inferenceservices.forebay.dev"
SERVING = "forebay.dev/inference-service"


def pods(server: ApiServer, namespace: str) -> dict[str, str]:
    """The images of the pods that serve, by uid."""
    path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={SERVING}"
    return {
        pod["metadata"]["uid"]: pod["spec"]["containers"][0]["image"]
        for pod in server.request("GET", path)[1]["items"]
    }


def exists(server: ApiServer, *named: str) -> bool:
    return bool(server.kubectl("get", *named, "--ignore-not-found", "-o", "name").stdout.strip())


def serve(server: ApiServer, namespace: str, name: str, **spec: object) -> dict[str, str]:
    apply_service(server, namespace, name, **spec)
    wait_ready(server, namespace, name)
    return pods(server, namespace)


def test_an_upgrade_from_the_previous_chart_restarts_no_pod_of_a_model(
    release: Release, team: str, tmp_path: Path
) -> None:
    server = release.server
    previous = package(copy_chart(tmp_path, "0.0.9", log={"level": "debug", "format": "full"}))
    release.upgrade("--set=image.runtime.tag=old", "--set=image.operator.tag=old", chart=previous)
    with release.operating(tmp_path / "old"):
        before = serve(server, team, "before", replicas=2)

    release.upgrade("--set=image.runtime.tag=new", "--set=image.operator.tag=new")
    with release.operating(tmp_path / "new"):
        after = serve(server, team, "after")

    assert set(before.values()) == {"localhost/forebay-runtime:old"}
    assert before.items() < after.items()
    assert {after[uid] for uid in after.keys() - before} == {"localhost/forebay-runtime:new"}
    assert '"chart":"forebay-0.1.0"' in release.helm("list", "--output=json")


def test_what_is_uninstalled_leaves_models_serving_and_is_adopted_when_it_returns(
    release: Release, team: str, tmp_path: Path
) -> None:
    server = release.server
    release.upgrade()
    with release.operating(tmp_path / "first"):
        before = serve(server, team, "smollm2")

    said = release.uninstall()

    assert "inferenceservices.forebay.dev" in said
    assert exists(server, CRD) and exists(server, "fisvc/smollm2", "-n", team)
    assert not exists(server, "deployments,roles,rolebindings,services", "-n", release.namespace)
    assert not exists(server, "clusterroles,clusterrolebindings", "-l", "helm.sh/chart")
    assert pods(server, team) == before

    release.upgrade()
    with release.operating(tmp_path / "second"):
        assert serve(server, team, "smollm2", replicas=2).items() > before.items()


def test_a_release_without_keep_takes_every_service_with_it(release: Release, team: str) -> None:
    assert "deletes every InferenceService" in release.upgrade("--set=crds.keep=false")
    apply_service(release.server, team, "smollm2")

    release.uninstall()

    wait_until("The CRD goes", lambda: not exists(release.server, CRD))


@pytest.mark.long
def test_what_kubectl_has_applied_helm_can_take_over(
    release: Release, team: str, tmp_path: Path
) -> None:
    server = release.server
    server.kubectl("create", "namespace", release.namespace, check=False)
    server.kubectl("apply", "--server-side", "-f", "-", stdin=render("image.runtime.tag=old"))
    with release.operating(tmp_path / "applied"):
        before = serve(server, team, "smollm2")

    with pytest.raises(ChartError, match="invalid ownership metadata"):
        release.upgrade()
    release.upgrade("--take-ownership")

    with release.operating(tmp_path / "owned"):
        assert serve(server, team, "smollm2", replicas=2).items() > before.items()
