"""Story: what can be known to be wrong is refused at `kubectl apply`, with a sentence on it."""

import json
from typing import Any

import pytest

from cluster_api import Object
from commands import CommandError
from namespace import Namespace
from served import MODEL_URI, build_service

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "replicas together with scaling": (
        {"replicas": 2, "scaling": {"minReplicas": 1, "maxReplicas": 2}},
        "Set replicas or scaling, never both",
    ),
    "minReplicas above maxReplicas": (
        {"scaling": {"minReplicas": 3, "maxReplicas": 2}},
        "minReplicas",
    ),
    "an unknown uri scheme": (
        {"model": {"uri": "s3://bucket/model"}},
        "must begin with hf://, oci:// or pvc://",
    ),
    "a utilisation of 0": ({"engine": {"gpuMemoryUtilization": "0"}}, "above 0 and up to 1"),
    "a utilisation above 1": ({"engine": {"gpuMemoryUtilization": "1.2"}}, "above 0 and up to 1"),
    "a negative length": ({"engine": {"maxModelLen": -1}}, "must be 1 or more"),
    "a negative number of sequences": ({"engine": {"maxNumSeqs": -4}}, "must be 1 or more"),
    "a negative budget": ({"vram": {"budget": "-1Gi"}}, "positive quantity"),
    "negative replicas": ({"replicas": -1}, "replicas"),
    "a negative drain": ({"drain": {"timeoutSeconds": -1}}, "timeoutSeconds"),
    "a planned flag in extraArgs": (
        {"engine": {"extraArgs": ["--max-num-seqs=4"]}},
        "extraArgs",
    ),
    "a host path": (
        {"podTemplate": {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}},
        "hostPath",
    ),
}


@pytest.mark.parametrize(("spec", "sentence"), BAD.values(), ids=BAD.keys())
def test_refused_with_a_sentence(
    module_namespace: Namespace, spec: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CommandError) as refusal:
        module_namespace.apply(build_service("refused", **spec))

    assert sentence in str(refusal.value)
    assert module_namespace.get("inferenceservices", "refused") is None


@pytest.mark.parametrize("name", ["1model", "with.dot", "m" * 51])
def test_a_name_that_its_children_could_not_carry_is_refused(
    module_namespace: Namespace, name: str
) -> None:
    with pytest.raises(CommandError, match="name"):
        module_namespace.apply(build_service(name))


def test_a_misspelt_field_is_refused_by_kubectl(module_namespace: Namespace) -> None:
    misspelt: Object = build_service("misspelt", model={"uri": MODEL_URI, "quantisation": "Auto"})

    with pytest.raises(CommandError, match='unknown field ".*quantisation"'):
        module_namespace.apply(misspelt)


def test_a_good_manifest_is_taken_by_the_same_way(module_namespace: Namespace) -> None:
    accepted = build_service("accepted", replicas=0)

    module_namespace.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(accepted))
