"""What kwok plays for nodes and pods: stages that look at a pod's annotations.

A pod becomes ready at once and ends at once when it is deleted, unless an annotation says
otherwise: a test puts it into `spec.podTemplate.annotations`.
"""

import json
from typing import Any

from observed_builder import SMOLLM2

FATE = "fate.test/becomes"
"""Ready where it is absent; else `unready`, `crash`, `image`, `told`, or `stuck`: nothing ever
happens."""
READY_AFTER = "fate.test/ready-after"
"""A Go duration: how long it starts."""
GONE_AFTER = "fate.test/gone-after"
"""A Go duration: how long it drains once it is deleted."""
ADDRESS = "fate.test/address"
"""Its IP, where loopback will not do: the API server takes no loopback into EndpointSlices."""
TOLD = "fate.test/container"
"""The status of the container as JSON, for the fate `told`; `tell_container` writes it."""


def tell_container(**status: Any) -> dict[str, str]:
    """Annotations of a pod whose container gets a status of the test's own."""
    whole = {"name": "runtime", "image": "i", "imageID": "", "ready": False, "restartCount": 1}
    return {FATE: "told", TOLD: json.dumps(whole | {"started": False} | status)}


def build_stages() -> list[dict[str, Any]]:
    """The stages, as kwok's configuration takes them."""
    return [
        _stage("ready", _is("ready", None), _RUNNING.replace("READY", "True"), READY_AFTER),
        _stage("unready", _is("unready"), _RUNNING.replace("READY", "False"), READY_AFTER),
        _stage("crash", _is("crash"), _CRASHED, READY_AFTER),
        _stage("image", _is("image"), _IMAGE_MISSING, READY_AFTER),
        _stage("told", _is("told"), _TOLD, READY_AFTER),
        _stage("inspected", [_JOB_POD], _INSPECTED.replace("MESSAGE", _message())),
        _deletion(),
        _node(),
    ]


_ALIVE = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
_FRESH = {"key": ".status.startTime", "operator": "DoesNotExist"}
_SERVING = {
    "key": '.metadata.labels["forebay.dev/inspection-of"]',
    "operator": "DoesNotExist",
}
_JOB_POD = {**_SERVING, "operator": "Exists"}


def _is(*fates: str | None) -> list[dict[str, Any]]:
    key = f'.metadata.annotations["{FATE}"]'
    if None in fates:
        return [_SERVING, {"key": key, "operator": "DoesNotExist"}]
    return [_SERVING, {"key": key, "operator": "In", "values": list(fates)}]


def _stage(
    name: str, conditions: list[dict[str, Any]], status: str, delay: str = ""
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
        "selector": {"matchExpressions": [_ALIVE, _FRESH, *conditions]},
        "next": {"statusTemplate": status},
    }
    if delay:
        expression = f'.metadata.annotations["{delay}"]'
        spec["delay"] = {"durationMilliseconds": 0, "durationFrom": {"expressionFrom": expression}}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": f"pod-{name}"},
        "spec": spec,
    }


def _deletion() -> dict[str, Any]:
    stage = _stage("gone", [], "", GONE_AFTER)
    stage["spec"]["selector"] = {"matchExpressions": [{**_ALIVE, "operator": "Exists"}]}
    stage["spec"]["next"] = {"finalizers": {"empty": True}, "delete": True}
    return stage


def _node() -> dict[str, Any]:
    """Ready once; kwok renews its Lease from then on."""
    stage = _stage("node", [], _NODE_READY)
    stage["metadata"]["name"] = "node-ready"
    stage["spec"]["resourceRef"]["kind"] = "Node"
    fresh = {"key": ".status.phase", "operator": "DoesNotExist"}
    stage["spec"]["selector"] = {"matchExpressions": [fresh]}
    return stage


def _message() -> str:
    """As a single-quoted scalar of YAML."""
    return "'" + SMOLLM2.to_json().replace("'", "''") + "'"


_NODE_READY = """
phase: Running
conditions:
- type: Ready
  status: "True"
  reason: Played
  message: kwok plays this node
  lastHeartbeatTime: {{ Now | Quote }}
  lastTransitionTime: {{ Now | Quote }}
"""

_CONDITIONS = """
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ Now | Quote }}}
- {type: Ready, status: "READY", lastTransitionTime: {{ Now | Quote }}}
- {type: ContainersReady, status: "READY", lastTransitionTime: {{ Now | Quote }}}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
{{ $played := PodIPWith .spec.nodeName false ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) }}
podIP: {{ or ( index ( or .metadata.annotations dict ) "fate.test/address" ) $played | Quote }}
startTime: {{ Now | Quote }}
"""  # noqa: E501

_RUNNING = (
    _CONDITIONS
    + """
phase: Running
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: {{ eq "READY" "True" }}
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ Now | Quote }}}}
{{ end }}
"""
)

_CRASHED = (
    _CONDITIONS.replace("READY", "False")
    + """
phase: Running
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: false
  started: false
  restartCount: 3
  state: {waiting: {reason: CrashLoopBackOff, message: "back-off 40s restarting failed container"}}
  lastState:
    terminated:
      exitCode: 1
      reason: Error
      message: it crashed
      startedAt: {{ Now | Quote }}
      finishedAt: {{ Now | Quote }}
{{ end }}
"""
)

_IMAGE_MISSING = (
    _CONDITIONS.replace("READY", "False")
    + """
phase: Pending
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: false
  started: false
  restartCount: 0
  state:
    waiting:
      reason: ImagePullBackOff
      message: 'Back-off pulling image "{{ .image }}": not found'
{{ end }}
"""
)

_TOLD = (
    _CONDITIONS.replace("READY", "False")
    + """
phase: Running
containerStatuses:
- {{ index .metadata.annotations "fate.test/container" }}
"""
)

_INSPECTED = (
    _CONDITIONS.replace("READY", "False")
    + """
phase: Succeeded
containerStatuses:
- name: inspect
  image: i
  imageID: ""
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      exitCode: 0
      reason: Completed
      message: MESSAGE
      startedAt: {{ Now | Quote }}
      finishedAt: {{ Now | Quote }}
"""
)
