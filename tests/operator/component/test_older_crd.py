"""An operator that was upgraded before its CRDs says what they have room for."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from kubernetes.aio.client.configuration import Configuration

from api_server import ApiServer
from forebay_operator.cluster import ApiError
from forebay_operator.kinds import Kind
from forebay_operator.kubernetes_cluster import KubernetesCluster
from forebay_operator.undeclared import apply_status, drop_fields

OLDER = Kind("older.test", "v1", "Older", "olders")
TEXT = {"type": "string"}
STATUS = {
    "type": "object",
    "properties": {
        "url": TEXT,
        "vram": {"type": "object", "properties": {"total": TEXT}},
        "draining": {"type": "array", "items": {"type": "object", "properties": {"pod": TEXT}}},
    },
}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{OLDER.plural}.{OLDER.group}"},
    "spec": {
        "group": OLDER.group,
        "names": {"kind": OLDER.name, "plural": OLDER.plural},
        "scope": "Namespaced",
        "versions": [
            {
                "name": OLDER.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"status": STATUS}}},
            }
        ],
    },
}
OLD = {"url": "u", "vram": {"total": "1Gi"}, "draining": [{"pod": "a.b"}, {"pod": "c"}]}
NEW = {
    "url": "u",
    "vram": {"total": "1Gi", "perReplica": "1Gi"},
    "draining": [{"pod": "a.b", "reason": "Evicted"}, {"pod": "c", "reason": "Evicted"}],
    "memory": {"total": "1Gi"},
}


@pytest.mark.parametrize(
    ("paths", "left"),
    [
        ([".status.vram.perReplica"], NEW | {"vram": OLD["vram"]}),
        ([".status.draining[0].reason"], NEW | {"draining": OLD["draining"]}),
        (['.status.draining[pod="a.b"].reason'], NEW | {"draining": OLD["draining"]}),
        ([".status.elsewhere.name"], NEW),
    ],
    ids=["a field", "of each item", "an item by its key", "what is not there"],
)
def test_a_field_is_dropped(paths: list[str], left: dict[str, Any]) -> None:
    assert drop_fields({"status": NEW}, paths) == {"status": left}


@pytest.fixture
async def cluster(api_server: ApiServer) -> AsyncIterator[KubernetesCluster]:
    configuration = Configuration(host=api_server.url)
    configuration.ssl_ca_cert = str(api_server.folder / "ca.crt")
    configuration.cert_file = str(api_server.folder / "admin.crt")
    configuration.key_file = str(api_server.folder / "admin.key")

    async def load() -> Configuration:
        return configuration

    client = KubernetesCluster(configuration, load)
    yield client
    await client.close()


@pytest.mark.component
async def test_a_status_is_written_without_the_fields_that_its_crd_does_not_have(
    api_server: ApiServer, namespace: str, cluster: KubernetesCluster
) -> None:
    api_server.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(CRD))
    api_server.wait_for_kinds()
    metadata = {"name": "one", "namespace": namespace}
    manifest = {"apiVersion": OLDER.api_version, "kind": OLDER.name, "metadata": metadata}
    await cluster.apply(OLDER, manifest)
    written = await apply_status(cluster, OLDER, {**manifest, "status": NEW})
    assert written["status"] == OLD
    with pytest.raises(ApiError, match="expected string"):
        await apply_status(cluster, OLDER, {**manifest, "status": {"url": 1}})
    api_server.kubectl("delete", "-f", "-", stdin=yaml.safe_dump(CRD))
