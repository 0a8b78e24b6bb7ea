"""The pod template that serves one plan; it will be pinned, so it names every number."""

from forebay_operator.kinds import MANAGED_LABEL, TEMPLATE_HASH_LABEL
from forebay_operator.planning.children.hub_trust import build_hub_trust
from forebay_operator.planning.children.metadata import fingerprint, selector_labels
from forebay_operator.planning.children.model_source import build_model_volumes
from forebay_operator.planning.children.pod_frame import build_confinement, build_placement
from forebay_operator.planning.children.runtime_container import (
    CACHE_PATH,
    SCRATCH_PATH,
    TemplateInputs,
    build_runtime_container,
)
from forebay_operator.planning.nodes.pinning import add_pin
from forebay_operator.planning.situation import Manifest
from forebay_operator.service import PodTemplate, Service

STOP_MARGIN_SECONDS = 10
"""Between the end of the drain and the kubelet's kill."""


def build_pod_template(service: Service, inputs: TemplateInputs) -> Manifest:
    """The template, with its own hash as a label that tells pods of old and new templates apart."""
    wanted = service.pod_template
    volumes, mounts = _build_volumes(service, inputs)
    container = build_runtime_container(service, inputs)
    spec: Manifest = {
        "terminationGracePeriodSeconds": service.drain.lame_duck_seconds
        + service.drain.timeout_seconds
        + STOP_MARGIN_SECONDS,
        "containers": [container | {"volumeMounts": mounts}],
        "volumes": volumes,
        **build_confinement(service),
        **build_placement(service),
        **_build_named(wanted),
    }
    if affinity := add_pin({**wanted.affinity}, inputs.pin):
        spec["affinity"] = affinity
    labels = dict(wanted.labels) | MANAGED_LABEL | selector_labels(service)
    metadata: Manifest = {"labels": labels}
    if wanted.annotations:
        metadata["annotations"] = dict(wanted.annotations)
    digest = fingerprint({"metadata": metadata, "spec": spec}, 10)
    return {
        "metadata": metadata | {"labels": labels | {TEMPLATE_HASH_LABEL: digest}},
        "spec": spec,
    }


def _build_volumes(
    service: Service, inputs: TemplateInputs
) -> tuple[list[Manifest], list[Manifest]]:
    """Ours first; a mount of the user's at the same path takes the place of ours."""
    volumes: list[Manifest] = []
    mounts: list[Manifest] = []
    for model in service.models:
        add_new(build_model_volumes(model), (volumes, mounts))
    for model in service.models:
        add_new(build_hub_trust(model, inputs.settings), (volumes, mounts))
    folders: dict[str, tuple[str, Manifest]] = {SCRATCH_PATH: ("forebay-tmp", {})}
    if any(model.scheme == "hf" for model in service.models) or inputs.fit.device == "GPU":
        folders[CACHE_PATH] = ("forebay-cache", {})
    if inputs.fit.num_gpus > 1:
        # The ranks exchange tensors through shared memory, of which a container has 64 MiB.
        folders["/dev/shm"] = ("forebay-shm", {"medium": "Memory"})
    taken = {mount["mountPath"].rstrip("/") for mount in service.pod_template.volume_mounts}
    for path, (name, source) in folders.items():
        if path not in taken:
            volumes.append({"name": name, "emptyDir": source})
            mounts.append({"name": name, "mountPath": path})
    volumes += [dict(volume) for volume in service.pod_template.volumes]
    mounts += [dict(mount) for mount in service.pod_template.volume_mounts]
    return volumes, mounts


def add_new(found: tuple[list[Manifest], ...], known: tuple[list[Manifest], ...]) -> None:
    """Add volumes and mounts that are not there yet: two models may share the hub's."""
    for more, there in zip(found, known, strict=True):
        there += [one for one in more if one not in there]


def _build_named(wanted: PodTemplate) -> Manifest:
    named = {
        "runtimeClassName": wanted.runtime_class_name,
        "priorityClassName": wanted.priority_class_name,
    }
    return {key: value for key, value in named.items() if value}
