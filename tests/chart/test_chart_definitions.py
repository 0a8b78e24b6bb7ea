"""The CRDs of a release are those of crds/, by whichever way the chart arrives, and may gain
versions."""

import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_server import ApiServer
from chart import CHART, render_objects
from chart_release import Release, apply_service, copy_chart, edit_yaml, package, wait_ready

CRDS = CHART.parents[1] / "crds"
KEEP = {"helm.sh/resource-policy": "keep"}
RESOURCE = "inferenceservices.forebay.dev"


def read_definitions() -> dict[str, dict[str, Any]]:
    """The CRDs as they are written, by name."""
    read = [yaml.safe_load(file.read_text()) for file in CRDS.glob("*.yaml")]
    return {one["metadata"]["name"]: one for one in read}


def rendered_definitions(*values: str) -> dict[str, dict[str, Any]]:
    objects = render_objects(*values)
    crds = [one for one in objects if one["kind"] == "CustomResourceDefinition"]
    return {one["metadata"]["name"]: one for one in crds}


def test_a_release_brings_the_definitions_as_they_are_written_and_keeps_them() -> None:
    rendered = rendered_definitions()
    written = read_definitions()

    assert {name: one["spec"] for name, one in rendered.items()} == {
        name: one["spec"] for name, one in written.items()
    }
    assert [one["metadata"].get("annotations") for one in rendered.values()] == [KEEP] * len(
        written
    )


@pytest.mark.parametrize(
    ("value", "count"),
    [("crds.keep=false", len(read_definitions())), ("crds.install=false", 0)],
    ids=["they go with the release", "somebody else brings them"],
)
def test_definitions_are_not_kept_where_nobody_asks_for_it(value: str, count: int) -> None:
    rendered = rendered_definitions(value)

    assert len(rendered) == count
    assert all("annotations" not in one["metadata"] for one in rendered.values())


def test_a_package_holds_the_definitions_as_files(tmp_path: Path) -> None:
    packed = package(copy_chart(tmp_path, "1.2.3"))
    with tarfile.open(packed) as archive:
        files = {member.name for member in archive.getmembers() if member.isfile()}

    names = {f"forebay/definitions/{file.name}" for file in CRDS.glob("*.yaml")}
    assert names <= files
    assert {"forebay/values.schema.json", "forebay/README.md"} <= files


def add_version(crd: dict[str, Any]) -> dict[str, Any]:
    """A second served version of the same schema, which is the one that is stored from now on."""
    [first] = crd["spec"]["versions"]
    crd["spec"]["versions"] = [{**first, "storage": False}, {**first, "name": "v1beta1"}]
    return crd


def read(server: ApiServer, version: str, namespace: str, name: str) -> dict[str, Any]:
    path = f"/apis/forebay.dev/{version}/namespaces/{namespace}/inferenceservices/{name}"
    status, found = server.request("GET", path)
    assert status == 200, found
    assert found["apiVersion"] == f"forebay.dev/{version}"
    return dict(found)


@pytest.mark.component
def test_a_later_chart_may_store_another_version_and_no_service_is_lost(
    release: Release, team: str, tmp_path: Path
) -> None:
    server = release.server
    release.upgrade()
    apply_service(server, team, "older")
    before = read(server, "v1alpha1", team, "older")
    later = copy_chart(tmp_path, "0.2.0")
    edit_yaml(later / "definitions/inferenceservices.yaml", add_version)

    release.upgrade(chart=later)
    apply_service(server, team, "newer", version="v1beta1")
    stored_anew = server.kubectl("get", RESOURCE, "-n", team, "-o", "json").stdout
    server.kubectl("replace", "-f", "-", stdin=stored_anew)
    migrated = {"status": {"storedVersions": ["v1beta1"]}}
    crd = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{RESOURCE}/status"
    assert server.request("PATCH", crd, migrated, "application/merge-patch+json")[0] == 200

    for version in ("v1alpha1", "v1beta1"):
        after = read(server, version, team, "older")
        assert after["spec"] == before["spec"]
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["metadata"]["generation"] == 1
    with release.operating(tmp_path / "log"):
        wait_ready(server, team, "older")
        wait_ready(server, team, "newer")
