"""The CRD against a real API server: what it takes, what it refuses and in which words, and what it
explains."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_server import ApiServer

pytestmark = pytest.mark.component

ROOT = Path(__file__).parents[3]
PATH = "/apis/forebay.dev/v1alpha1/namespaces/default/inferenceservices"
DRY_RUN = f"{PATH}?dryRun=All&fieldValidation=Strict"

SMALL = {"model": {"uri": "hf://HuggingFaceTB/SmolLM2-135M-Instruct@main"}}
FULL = yaml.safe_load("""
model: {uri: "oci://localhost:5000/models/smollm2:q4_1", name: SmolLM2/135M, quantization: INT8}
device: CPU
vram: {budget: 48Gi, gpuMemory: 80Gi, gpuResource: amd.com/gpu}
engine:
  maxModelLen: 8192
  maxNumSeqs: 64
  dtype: float32
  kvCacheDtype: Auto
  tensorParallelSize: 2
  pipelineParallelSize: 1
  gpuMemoryUtilization: "0.90"
  speculative: {method: draft_model, model: "pvc://models/draft", numTokens: 4}
  extraArgs: [--max-num-queued-reqs=64, --max-num-queued-tokens, "100000"]
scaling:
  minReplicas: 1
  maxReplicas: 4
  targetQueueDepth: 4
  scaleDownStabilizationSeconds: 300
  schedules:
    - {cron: "0 8 * * MON-FRI", timeZone: Europe/Berlin, minReplicas: 2, maxReplicas: 8}
    - {cron: "*/10 20-23,0 1,15 * 5#2"}
startup: {timeoutSeconds: 1800}
drain: {timeoutSeconds: 120, lameDuckSeconds: 5}
rollout: {strategy: Auto, progressDeadlineSeconds: 1800}
runtimeVersion: ""
podTemplate:
  labels: {team: a}
  annotations: {example.com/note: a note}
  nodeSelector: {kubernetes.io/arch: amd64}
  tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: gpu, operator: In, values: [a100]}]}]
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 1
          podAffinityTerm:
            topologyKey: kubernetes.io/hostname
            labelSelector: {matchLabels: {team: a}}
  resources: {requests: {cpu: 2, memory: 8Gi}, limits: {memory: 8Gi, rdma/hca: "1"}}
  env:
    - {name: OMP_NUM_THREADS, value: "2"}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: database, key: password}}}
  runtimeClassName: nvidia
  priorityClassName: high
  imagePullSecrets: [{name: registry}]
  volumes:
    - {name: cache, emptyDir: {medium: Memory, sizeLimit: 1Gi}}
    - {name: data, persistentVolumeClaim: {claimName: data, readOnly: true}}
  volumeMounts: [{name: cache, mountPath: /cache}, {name: data, mountPath: /data, readOnly: true}]
""")

# id: (path of the field, its value, what the refusal must say)
REFUSED: dict[str, tuple[str, Any, str]] = {
    "replicas together with scaling": ("replicas", 2, "Set replicas or scaling, never both"),
    "minReplicas above maxReplicas": (
        "scaling",
        {"minReplicas": 3, "maxReplicas": 2},
        "may not be above",
    ),
    "minReplicas of zero": ("scaling.minReplicas", 0, "comes with the gateway"),
    "minReplicas below zero": ("scaling.minReplicas", -1, "must be 1 or more"),
    "maxReplicas of zero": ("scaling", {"maxReplicas": 0}, "maxReplicas must be 1 or more"),
    "scaling without maxReplicas": ("scaling", {}, "maxReplicas: Required value"),
    "a schedule without a time": ("scaling.schedules", [{}], "cron: Required value"),
    "a schedule with a nickname": ("scaling.schedules", [{"cron": "@daily"}], "has five fields"),
    "a schedule of four fields": ("scaling.schedules", [{"cron": "0 8 * *"}], "has five fields"),
    "a time zone that is an offset": (
        "scaling.schedules",
        [{"cron": "0 8 * * *", "timeZone": "+01:00"}],
        "a name of the IANA database",
    ),
    "a schedule that sleeps": (
        "scaling.schedules",
        [{"cron": "0 8 * * *", "minReplicas": 0}],
        "schedules.minReplicas 0 comes with the gateway",
    ),
    "a schedule upside down": (
        "scaling.schedules",
        [{"cron": "0 8 * * *", "minReplicas": 3, "maxReplicas": 2}],
        "may not be above its maxReplicas",
    ),
    "a schedule above scaling's maximum": (
        "scaling",
        {"maxReplicas": 4, "schedules": [{"cron": "0 8 * * *", "minReplicas": 5}]},
        "may not be above scaling.maxReplicas",
    ),
    "a schedule below scaling's minimum": (
        "scaling",
        {
            "maxReplicas": 4,
            "minReplicas": 2,
            "schedules": [{"cron": "0 8 * * *", "maxReplicas": 1}],
        },
        "nor its maxReplicas below scaling.minReplicas",
    ),
    "an unknown scheme": (
        "model.uri",
        "s3://bucket/model",
        "must begin with hf://, oci:// or pvc://",
    ),
    "no scheme": ("model.uri", "meta-llama/Llama-3", "must begin with hf://, oci:// or pvc://"),
    "a hub uri without organisation": ("model.uri", "hf://llama", "has the form hf://ORG/NAME"),
    "a hub uri with an empty revision": ("model.uri", "hf://a/b@", "has the form hf://ORG/NAME"),
    "an image uri without image": ("model.uri", "oci://", "has the form oci://IMAGE"),
    "an image uri with a space": ("model.uri", "oci://a b", "has the form oci://IMAGE"),
    "a claim uri without claim": ("model.uri", "pvc://", "has the form pvc://CLAIM"),
    "a claim uri that climbs": ("model.uri", "pvc://claim/../other", "has the form pvc://CLAIM"),
    "no model": ("model", {}, "model.uri: Required value"),
    "a hub token for an image": ("model.secretName", "token", "is used for hf:// models only"),
    "a served name with a space": ("model.name", "my model", "model.name must begin with"),
    "a utilisation of zero": ("engine.gpuMemoryUtilization", "0.00", "above 0 and up to 1"),
    "a utilisation above one": ("engine.gpuMemoryUtilization", "1.01", "above 0 and up to 1"),
    "a negative utilisation": ("engine.gpuMemoryUtilization", "-0.5", "above 0 and up to 1"),
    "a utilisation in percent": ("engine.gpuMemoryUtilization", "90%", "above 0 and up to 1"),
    "a negative length": ("engine.maxModelLen", -1, "engine.maxModelLen is a number of tokens"),
    "no requests": ("engine.maxNumSeqs", 0, "engine.maxNumSeqs is a number of requests"),
    "no GPUs": ("engine.tensorParallelSize", 0, "from 1 to 8"),
    "more GPUs than a node has": ("engine.tensorParallelSize", 16, "from 1 to 8"),
    "no stages": ("engine.pipelineParallelSize", 0, "from 1 to 8"),
    "an unknown method of proposing": ("engine.speculative.method", "eagle", "Unsupported value"),
    "a draft model for n-grams": (
        "engine.speculative",
        {"method": "ngram", "model": "hf://a/b"},
        "method ngram takes none",
    ),
    "no draft model": (
        "engine.speculative",
        {"method": "draft_model"},
        "draft_model needs engine.speculative.model",
    ),
    "a number of proposed tokens alone": (
        "engine.speculative",
        {"numTokens": 4},
        "says nothing without engine.speculative.method",
    ),
    "no proposed tokens": ("engine.speculative.numTokens", 0, "must be from 1 to 16"),
    "too many proposed tokens": ("engine.speculative.numTokens", 17, "must be from 1 to 16"),
    "a draft model of an unknown scheme": (
        "engine.speculative.model",
        "s3://bucket/model",
        "must begin with hf://, oci:// or pvc://",
    ),
    "a negative budget": ("vram.budget", "-1Gi", "vram.budget must be a positive quantity"),
    "a budget of zero": ("vram.budget", "0", "vram.budget must be a positive quantity"),
    "a budget beyond all machines": ("vram.budget", "2Ei", "at most 1Ei"),
    "a budget of words": ("vram.budget", "much", "vram.budget must be a positive quantity"),
    "negative GPU memory": (
        "vram.gpuMemory",
        "-80Gi",
        "vram.gpuMemory must be a positive quantity",
    ),
    "a GPU resource that is no extended one": (
        "vram.gpuResource",
        "cpu",
        "must be an extended resource",
    ),
    "an unknown device": ("device", "TPU", "Unsupported value"),
    "negative replicas": ("replicas", -1, "replicas must be from 0 to 1000"),
    "a negative drain": ("drain.timeoutSeconds", -1, "drain.timeoutSeconds must be 0 or more"),
    "a negative lame duck": (
        "drain.lameDuckSeconds",
        -1,
        "drain.lameDuckSeconds must be 0 or more",
    ),
    "no time to start": ("startup.timeoutSeconds", 0, "startup.timeoutSeconds must be 1 or more"),
    "a negative deadline": ("rollout.progressDeadlineSeconds", -1, "must be 1 or more"),
    "a negative queue": (
        "scaling",
        {"maxReplicas": 2, "targetQueueDepth": 0},
        "targetQueueDepth is a number",
    ),
    "a runtime version with a slash": ("runtimeVersion", "a/b", "must be an image tag"),
    "a planned flag": (
        "engine.extraArgs",
        ["--max-model-len", "1"],
        "may not set a flag that Forebay plans",
    ),
    "a planned flag with a value": ("engine.extraArgs", ["--dtype=float16"], "may not set a flag"),
    "a planned flag of JSON": ("engine.extraArgs", ["--speculative-config={}"], "may not set"),
    "a planned flag cut short": ("engine.extraArgs", ["--tensor-par", "2"], "may not set a flag"),
    "a planned flag cut short with a value": (
        "engine.extraArgs",
        ["--gpu-mem=1"],
        "may not set a flag",
    ),
    "a planned flag with underscores": (
        "engine.extraArgs",
        ["--max_num_seqs=1"],
        "may not set a flag",
    ),
    "a flag and its value in one": ("engine.extraArgs", ["--seed 1"], "as two items, or as one"),
    "a planned flag behind others": ("engine.extraArgs", ["--a", "--port=1"], "may not set a flag"),
    "a label of ours": (
        "podTemplate.labels",
        {"forebay.dev/x": "y"},
        "by which the pods are found",
    ),
    "the label of the manager": (
        "podTemplate.labels",
        {"app.kubernetes.io/managed-by": "me"},
        "by which the pods are found",
    ),
    "an annotation of ours": (
        "podTemplate.annotations",
        {"forebay.dev/x": "y"},
        "which Forebay writes",
    ),
    "a looser AppArmor profile": (
        "podTemplate.annotations",
        {"container.apparmor.security.beta.kubernetes.io/runtime": "unconfined"},
        "may not loosen",
    ),
    "GPUs as limits": (
        "podTemplate.resources.limits",
        {"nvidia.com/gpu": 1},
        "may not ask for GPUs",
    ),
    "GPUs as requests": (
        "podTemplate.resources.requests",
        {"nvidia.com/gpu": "1"},
        "may not ask for GPUs",
    ),
    "a negative resource": (
        "podTemplate.resources.limits",
        {"memory": "-1Gi"},
        "a quantity of 0 or more",
    ),
    "the hub in the environment": (
        "podTemplate.env",
        [{"name": "HF_ENDPOINT"}],
        "may not set HF_ENDPOINT",
    ),
    "a variable of two sources": (
        "podTemplate.env",
        [{"name": "A", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "value or valueFrom, never both",
    ),
    "a mount without volume": (
        "podTemplate.volumeMounts",
        [{"name": "gone", "mountPath": "/data"}],
        "must name a volume",
    ),
    "a mount over the model": (
        "podTemplate",
        {
            "volumes": [{"name": "a", "emptyDir": {}}],
            "volumeMounts": [{"name": "a", "mountPath": "/model/x"}],
        },
        "neither / nor /model nor /draft",
    ),
    "a volume without source": ("podTemplate.volumes", [{"name": "a"}], "exactly one of emptyDir"),
    "a volume of our name": (
        "podTemplate.volumes",
        [{"name": "model", "emptyDir": {}}],
        "may not be called model",
    ),
    "a volume of the draft model's name": (
        "podTemplate.volumes",
        [{"name": "draft", "emptyDir": {}}],
        "may not be called model or draft",
    ),
    "a mount over the draft model": (
        "podTemplate",
        {
            "volumes": [{"name": "a", "emptyDir": {}}],
            "volumeMounts": [{"name": "a", "mountPath": "/draft"}],
        },
        "neither / nor /model nor /draft",
    ),
    "a host path": (
        "podTemplate.volumes",
        [{"name": "a", "hostPath": {"path": "/"}}],
        'unknown field "spec.podTemplate.volumes[0].hostPath"',
    ),
    "a service account": ("podTemplate.serviceAccountName", "admin", "unknown field"),
    "a security context": ("podTemplate.securityContext", {}, "unknown field"),
    "a misspelt field": ("engine.maxModelLenght", 1, 'unknown field "spec.engine.maxModelLenght"'),
}

NAMES = {
    "a digit first": "7b-model",
    "an upper case letter": "Llama",
    "a dot": "llama.cpp",
    "a dash last": "llama-",
    "51 characters": "a" * 51,
}


def service(spec: dict[str, Any], name: str = "smollm2") -> dict[str, Any]:
    return {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": spec,
    }


def with_field(path: str, value: Any) -> dict[str, Any]:
    """The full example where it holds the field's parent, so that one thing alone is wrong."""
    spec = copy.deepcopy(FULL)
    if path != "scaling" and path.split(".")[0] == "replicas" and value != 2:
        del spec["scaling"]
    if path.startswith("vram.gpuResource") or "resources" in path:
        del spec["vram"]
    *parents, last = path.split(".")
    parent = spec
    for one in parents:
        parent = parent.setdefault(one, {})
    parent[last] = value
    return spec


@pytest.mark.parametrize("spec", [SMALL, FULL], ids=["the least", "every field"])
def test_a_good_manifest_is_taken(api_server: ApiServer, spec: dict[str, Any]) -> None:
    status, answer = api_server.request("POST", DRY_RUN, service(spec))
    assert (status, answer.get("message")) == (201, None)
    assert answer["spec"] == spec


@pytest.mark.parametrize(("path", "value", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_a_bad_manifest_is_refused(
    api_server: ApiServer, path: str, value: Any, sentence: str
) -> None:
    status, answer = api_server.request("POST", DRY_RUN, service(with_field(path, value)))
    assert status in (400, 422), "it was taken"
    assert sentence in answer["message"]


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_a_name_that_its_children_could_not_carry_is_refused(
    api_server: ApiServer, name: str
) -> None:
    status, answer = api_server.request("POST", DRY_RUN, service(SMALL, name))
    assert status == 422
    assert name in ("Llama", "llama-") or "at most 50 characters" in answer["message"]


def test_the_longest_name_is_taken(api_server: ApiServer) -> None:
    assert api_server.request("POST", DRY_RUN, service(SMALL, "a" * 50))[0] == 201


@pytest.mark.parametrize(
    "uri",
    [
        "hf://a/b",
        "hf://a/b.c-d_e@v1.0/x",
        "oci://r.io:5000/a/b@sha256:" + "0" * 64,
        "pvc://c",
        "pvc://c/a/b.gguf",
        "pvc://c/",
    ],
)
def test_a_good_uri_is_taken(api_server: ApiServer, uri: str) -> None:
    assert api_server.request("POST", DRY_RUN, service({"model": {"uri": uri}}))[0] == 201


def test_kubectl_refuses_a_misspelt_field(api_server: ApiServer) -> None:
    misspelt = yaml.safe_dump(service({**SMALL, "replica": 2}))
    done = api_server.kubectl("apply", "--dry-run=server", "-f", "-", stdin=misspelt, check=False)
    assert done.returncode != 0
    assert 'unknown field "spec.replica"' in done.stderr


def test_kubectl_explains_the_fields(api_server: ApiServer) -> None:
    path = "inferenceservices.forebay.dev.spec.drain.timeoutSeconds"
    assert "Default: 120" in api_server.kubectl("explain", path).stdout


@pytest.mark.parametrize("start", [{"replicas": 2}, {}], ids=["replicas set", "replicas absent"])
def test_kubectl_scales(api_server: ApiServer, namespace: str, start: dict[str, int]) -> None:
    manifest = yaml.safe_dump(service({**SMALL, **start}))
    api_server.kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest)
    api_server.kubectl("scale", "-n", namespace, "fisvc/smollm2", "--replicas=3")
    replicas = api_server.kubectl(
        "get", "-n", namespace, "fisvc/smollm2", "-o", "jsonpath={.spec.replicas}"
    )
    assert replicas.stdout == "3"


def test_kubectl_scale_of_a_scaling_service_is_refused_with_the_way_out(
    api_server: ApiServer, namespace: str
) -> None:
    manifest = yaml.safe_dump(service({**SMALL, "scaling": {"maxReplicas": 2}}))
    api_server.kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest)
    done = api_server.kubectl(
        "scale", "-n", namespace, "fisvc/smollm2", "--replicas=3", check=False
    )
    assert done.returncode != 0
    assert "change those instead of scaling by hand" in done.stderr


@pytest.mark.parametrize("plural", ["inferenceservices", "vramquotas"])
def test_every_field_has_a_description(plural: str) -> None:
    crd = yaml.safe_load((ROOT / "crds" / f"{plural}.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert list(_undescribed("", schema)) == [".metadata"]


def _undescribed(path: str, schema: dict[str, Any]) -> Any:
    if path and not schema.get("description"):
        yield path
    for name, field in schema.get("properties", {}).items():
        yield from _undescribed(f"{path}.{name}", field)
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            yield from _undescribed(f"{path}[]", schema[inner])
