"""Whatever the chart can make is taken by a real API server, and says what its values said."""

from typing import Any

import pytest
import yaml

from api_server import ApiServer
from chart_release import Release

pytestmark = pytest.mark.component

MONITORS = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
DIGEST = "sha256:" + "ab" * 32


def monitor_definition(kind: str) -> dict[str, Any]:
    """A stand-in for one of the Prometheus Operator's CRDs: any spec will do."""
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{**version, "schema": {"openAPIV3Schema": anything}}],
        },
    }


def everything(team: str) -> dict[str, Any]:
    return {
        "image": {
            "pullPolicy": "Always",
            "pullSecrets": [{"name": "regcred"}],
            "operator": {"digest": DIGEST, "tag": "ignored"},
        },
        "replicas": 2,
        "podDisruptionBudget": {"enabled": True},
        "tolerations": [{"key": "control", "operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/hostname": "played-1"},
        "podAnnotations": {"a.test/noted": "yes"},
        "podLabels": {"cost-center": "7"},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "log": {"level": "debug", "format": "json"},
        "hub": {"endpoint": "https://hub.example.com", "ca": {"configMap": "hub-ca"}},
        "priorityClass": {"create": True},
        "models": {"priorityClass": {"create": True}},
        "metrics": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "podMonitor": {"enabled": True},
            "rules": {"enabled": True},
        },
        "networkPolicies": {
            "metricsFrom": [
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "mon"}}}
            ],
            "operator": {"enabled": True, "apiServerCIDRs": ["10.0.0.1/32"]},
            "models": {"enabled": True, "namespaces": [team]},
        },
    }


@pytest.fixture
def plane(release: Release, team: str) -> ApiServer:
    """A release with everything switched on."""
    server = release.server
    definitions = [monitor_definition(kind) for kind in MONITORS]
    server.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(definitions))
    server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    values = server.folder / "everything.yaml"
    values.write_text(yaml.safe_dump(everything(team)))
    release.upgrade(f"--values={values}")
    return server


def test_all_of_it_is_made_and_says_what_was_asked(
    plane: ApiServer, release: Release, team: str
) -> None:
    def get(path: str) -> dict[str, Any]:
        status, found = plane.request("GET", path)
        assert status == 200, found
        return dict(found)

    here = f"namespaces/{release.namespace}"
    pod = release.deployment()["spec"]["template"]
    [container] = pod["spec"]["containers"]
    environ = {one["name"]: one.get("value") for one in container["env"]}
    assert pod["spec"]["priorityClassName"] == "forebay-operator"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "regcred"}]
    assert pod["metadata"]["labels"]["cost-center"] == "7"
    assert pod["metadata"]["annotations"] == {"a.test/noted": "yes"}
    assert container["image"] == f"localhost/forebay-operator@{DIGEST}"
    assert environ["FOREBAY_OPERATOR_IMAGE"] == container["image"]
    assert environ["FOREBAY_HUB_ENDPOINT"] == "https://hub.example.com"
    assert environ["FOREBAY_HUB_CA"] == "hub-ca/ca.crt"
    assert environ["FOREBAY_IMAGE_PULL_POLICY"] == container["imagePullPolicy"] == "Always"
    assert environ["HTTPS_PROXY"] == "http://proxy:3128"
    assert {"--verbose", "--log-format=json"} <= set(container["command"])
    budget = get(f"/apis/policy/v1/{here}/poddisruptionbudgets/forebay-operator")
    assert budget["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    for name in ("forebay-operator", "forebay-models"):
        get(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")
    monitors = f"/apis/monitoring.coreos.com/v1/{here}"
    monitor = get(f"{monitors}/servicemonitors/forebay-operator")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    [port] = get(f"/api/v1/{here}/services/forebay-operator-metrics")["spec"]["ports"]
    assert monitor["spec"]["endpoints"][0]["port"] == port["name"]
    assert port["targetPort"] in [one["name"] for one in container["ports"]]
    groups = get(f"{monitors}/prometheusrules/forebay-operator")["spec"]["groups"]
    asked = [rule["expr"] for group in groups for rule in group["rules"]]
    assert len(asked) > 1 and not [one for one in asked if "OPERATOR" in one]
    assert get(f"{monitors}/podmonitors/forebay-models")["spec"]["namespaceSelector"] == {
        "any": True
    }
    policies = "/apis/networking.k8s.io/v1/namespaces"
    own = get(f"{policies}/{release.namespace}/networkpolicies/forebay-operator")["spec"]
    assert own["egress"][0]["to"] == [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
    [ingress] = get(f"{policies}/{team}/networkpolicies/forebay-models")["spec"]["ingress"]
    assert ingress["ports"] == [{"port": 8000, "protocol": "TCP"}]
    assert len(ingress["from"]) == 3
