"""The pods are bounded, powerless, probed and drained, and carry what the closed list lets in."""

from dataclasses import replace
from typing import Any

import pytest

from forebay_operator.observed import Settings
from forebay_operator.planning import plan
from forebay_operator.planning.inspection.pin import repository_of
from observed_builder import (
    NOW,
    SMOLLM2,
    child,
    gpu_node,
    known_model,
    observed,
    service,
)


def deployment_of(settings: Settings | None = None, **spec: Any) -> dict[str, Any]:
    uri = spec.get("model", {}).get("uri", "oci://reg.test/smollm2:q4")
    known = known_model(uri, SMOLLM2)
    if secret := spec.get("model", {}).get("secretName"):
        known["secretName"] = secret
    picture = observed(service(status={"model": known}, **spec), nodes=(gpu_node("a", 16384, 8),))
    if settings is not None:
        picture = replace(picture, settings=settings)
    deployment = child(plan(picture, NOW), "Deployment")
    assert deployment is not None
    return deployment


def pod_of(**spec: Any) -> dict[str, Any]:
    pod: dict[str, Any] = deployment_of(**spec)["spec"]["template"]["spec"]
    return pod


def container_of(**spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = pod_of(**spec)["containers"][0]
    return container


def test_the_deployment_and_its_service_select_the_serving_label() -> None:
    deployment = deployment_of()
    label = {"forebay.dev/inference-service": "smollm2"}
    assert deployment["spec"]["selector"] == {"matchLabels": label}
    assert label.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    network_service = child(plan(observed(), NOW), "Service")
    assert network_service is not None
    assert network_service["spec"]["selector"] == label
    assert network_service["spec"]["ports"] == [
        {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}
    ]


def test_every_child_is_owned_and_labelled() -> None:
    known = service(status={"model": known_model()})
    for one in (*plan(observed(known), NOW).children, *plan(observed(), NOW).children):
        metadata = one["metadata"]
        (owner,) = metadata["ownerReferences"]
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "forebay"
        assert owner["uid"] == "service-uid" and owner["controller"] is True
        assert owner["blockOwnerDeletion"] is False


def test_pods_have_no_rights() -> None:
    pod = pod_of()
    assert pod["serviceAccountName"] == "smollm2-forebay"
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_grace_period_covers_lame_duck_and_drain() -> None:
    pod = pod_of(drain={"timeoutSeconds": 100, "lameDuckSeconds": 7})
    assert pod["terminationGracePeriodSeconds"] == 117
    assert "--shutdown-timeout=100" in pod["containers"][0]["args"]
    assert "--lame-duck-seconds=7" in pod["containers"][0]["args"]


def test_probes_follow_the_runtime() -> None:
    container = container_of(startup={"timeoutSeconds": 90})
    startup, ready = container["startupProbe"], container["readinessProbe"]
    assert startup["httpGet"]["path"] == ready["httpGet"]["path"] == "/ready"
    assert startup["periodSeconds"] * startup["failureThreshold"] == 90
    assert ready["periodSeconds"] == 1 and ready["failureThreshold"] >= 3
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"


@pytest.mark.parametrize(
    ("uri", "argument", "volumes"),
    [
        ("oci://reg.test/m:1", "/model", {"model", "forebay-tmp"}),
        ("pvc://models/llama", "/model/llama", {"model", "forebay-tmp"}),
        (
            "hf://org/name@main",
            f"hf://org/name@{SMOLLM2.revision}",
            {"forebay-tmp", "forebay-cache"},
        ),
    ],
    ids=["an image is mounted", "a claim is mounted", "a hub's model is pinned to its revision"],
)
def test_the_runtime_finds_the_model(uri: str, argument: str, volumes: set[str]) -> None:
    pod = pod_of(model={"uri": uri})
    assert pod["containers"][0]["args"][:2] == ["serve", argument]
    assert {one["name"] for one in pod["volumes"]} == volumes
    assert {one["name"] for one in pod["containers"][0]["volumeMounts"]} == volumes


def test_ranks_get_shared_memory() -> None:
    pod = pod_of(device="GPU", engine={"tensorParallelSize": 3})
    assert {"name": "forebay-shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]


def test_what_a_gpu_pod_compiles_goes_to_a_volume_that_a_user_may_replace() -> None:
    pod = pod_of(device="GPU")
    (container,) = pod["containers"]
    assert {"name": "FOREBAY_CACHE_DIR", "value": "/cache/compiled"} in container["env"]
    assert {"name": "forebay-cache", "mountPath": "/cache"} in container["volumeMounts"]
    own = {"volumes": [{"name": "own", "persistentVolumeClaim": {"claimName": "compiled"}}]}
    own["volumeMounts"] = [{"name": "own", "mountPath": "/cache"}]
    replaced = pod_of(device="GPU", podTemplate=own)
    assert "forebay-cache" not in {one["name"] for one in replaced["volumes"]}


def test_a_pod_writes_only_to_volumes_whoever_it_runs_as() -> None:
    (container,) = pod_of()["containers"]
    paths = {one["mountPath"] for one in container["volumeMounts"]}
    env = {one["name"]: one["value"] for one in container["env"]}
    assert {env["HOME"], env["TMPDIR"]} <= paths


def test_the_hub_and_its_token_reach_the_runtime() -> None:
    settings = Settings("reg.test/runtime:v1", "reg.test/operator:v1", "http://hub.test")
    deployment = deployment_of(settings, model={"uri": "hf://org/name", "secretName": "hf"})
    env = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    token = {"secretKeyRef": {"name": "hf", "key": "token"}}
    assert {"name": "HF_ENDPOINT", "value": "http://hub.test"} in env
    assert {"name": "HF_TOKEN", "valueFrom": token} in env


HUB_CA_FILE = "/etc/forebay/hub/ca.crt"


def test_the_certificates_of_a_private_hub_reach_the_runtime_under_one_name() -> None:
    settings = Settings("reg.test/runtime:v1", "reg.test/operator:v1", hub_ca="hub-ca/bundle.pem")
    pod = deployment_of(settings, model={"uri": "hf://org/name"})["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    source = {"name": "hub-ca", "items": [{"key": "bundle.pem", "path": "ca.crt"}]}
    mount = {"name": "forebay-hub-ca", "mountPath": "/etc/forebay/hub", "readOnly": True}
    assert {"name": "forebay-hub-ca", "configMap": source} in pod["volumes"]
    assert mount in container["volumeMounts"]
    assert {"name": "SSL_CERT_FILE", "value": HUB_CA_FILE} in container["env"]


def test_a_model_of_no_hub_needs_no_certificates() -> None:
    settings = Settings("reg.test/runtime:v1", "reg.test/operator:v1", hub_ca="hub-ca")
    deployment = deployment_of(settings, model={"uri": "oci://reg.test/m:1"})
    assert "hub-ca" not in str(deployment)


TEMPLATE = {
    "labels": {"team": "a"},
    "annotations": {"note": "b"},
    "nodeSelector": {"pool": "c"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "runtimeClassName": "nvidia",
    "priorityClassName": "high",
    "imagePullSecrets": [{"name": "pull"}],
    "volumes": [{"name": "scratch", "emptyDir": {}}],
    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    "env": [{"name": "HOME", "value": "/scratch"}, {"name": "OMP_NUM_THREADS", "value": "2"}],
    "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "4Gi", "cpu": "4"}},
}


def test_the_closed_list_is_merged() -> None:
    template = deployment_of(podTemplate=TEMPLATE)["spec"]["template"]
    pod, container = template["spec"], template["spec"]["containers"][0]
    assert template["metadata"]["labels"]["team"] == "a"
    assert template["metadata"]["annotations"] == {"note": "b"}
    for name in ("nodeSelector", "tolerations", "affinity", "runtimeClassName"):
        assert pod[name] == TEMPLATE[name]
    assert pod["priorityClassName"] == "high" and pod["imagePullSecrets"] == [{"name": "pull"}]
    assert {"name": "scratch", "emptyDir": {}} in pod["volumes"]
    assert {"name": "scratch", "mountPath": "/scratch"} in container["volumeMounts"]
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": "4Gi"},
        "limits": {"memory": "4Gi", "cpu": "4"},
    }
    assert [one["name"] for one in container["env"]] == ["HOME", "TMPDIR", "OMP_NUM_THREADS"]
    assert container["env"][0]["value"] == "/scratch"


def test_a_users_mount_takes_the_place_of_ours() -> None:
    template = {
        "volumes": [{"name": "big", "emptyDir": {}}],
        "volumeMounts": [{"name": "big", "mountPath": "/tmp/"}],
    }
    pod = pod_of(podTemplate=template)
    paths = [one["mountPath"].rstrip("/") for one in pod["containers"][0]["volumeMounts"]]
    assert sorted(paths) == ["/model", "/tmp"]
    assert "forebay-tmp" not in {one["name"] for one in pod["volumes"]}


def test_extra_arguments_come_last() -> None:
    arguments = container_of(engine={"extraArgs": ["--log-level", "debug"]})["args"]
    assert arguments[-2:] == ["--log-level", "debug"]


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("reg.test/runtime:v1", "reg.test/runtime"),
        ("reg.test:5000/runtime", "reg.test:5000/runtime"),
        ("reg.test:5000/runtime:v1@sha256:abc", "reg.test:5000/runtime"),
        ("runtime", "runtime"),
    ],
    ids=["a tag", "a port and no tag", "a digest", "a bare name"],
)
def test_a_version_replaces_the_tag(image: str, repository: str) -> None:
    assert repository_of(image) == repository
    settings = Settings(image, "reg.test/operator:v1")
    pod = deployment_of(settings, runtimeVersion="v7")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"{repository}:v7"


@pytest.mark.parametrize(
    ("spec", "rolling"),
    [
        ({}, {"maxSurge": 1, "maxUnavailable": 0}),
        ({"rollout": {"strategy": "Surge"}}, {"maxSurge": 1, "maxUnavailable": 0}),
        ({"rollout": {"strategy": "Replace"}}, {"maxSurge": 0, "maxUnavailable": 1}),
    ],
    ids=["Auto begins with a surge", "Surge", "Replace"],
)
def test_the_strategy_becomes_the_deployments(spec: dict[str, Any], rolling: Any) -> None:
    deployment = deployment_of(**spec)
    assert deployment["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}


def test_the_progress_deadline_is_the_users() -> None:
    deployment = deployment_of(rollout={"progressDeadlineSeconds": 77})
    assert deployment["spec"]["progressDeadlineSeconds"] == 77
