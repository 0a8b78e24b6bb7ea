"""Pin what the pods are made of: a ControllerRevision holds the rendered template and its inputs.

The template is rendered anew only when a field of the spec that renders into it changes. Replicas,
scaling, rollout, a new default image, a new operator or new nodes leave the newest revision, and
so the pods, alone.
"""

from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from typing import Any

from forebay_budget.quantity import parse_quantity
from forebay_operator.kinds import CONTROLLER_REVISION
from forebay_operator.observed import Object
from forebay_operator.planned import ObjectRef
from forebay_operator.planning.children.metadata import (
    build_metadata,
    fingerprint,
    reference_to,
)
from forebay_operator.planning.children.pod_template import build_pod_template
from forebay_operator.planning.children.runtime_container import TemplateInputs
from forebay_operator.planning.inspection.knowledge import ModelKnowledge
from forebay_operator.planning.inspection.pin import repository_of
from forebay_operator.planning.pods import is_finished, is_leaving, is_ready, template_hash
from forebay_operator.planning.situation import Manifest, Situation
from forebay_operator.planning.sizing import Sizing
from forebay_operator.service import Service

MOST_REVISIONS = 5
_NOT_RENDERED = frozenset(
    {"namespace", "name", "uid", "generation", "replicas", "scaling", "rollout"}
)


@dataclass(frozen=True)
class Revision:
    """A pinned template."""

    manifest: Manifest

    @property
    def number(self) -> int:
        number: int = self.manifest["revision"]
        return number

    @property
    def data(self) -> Manifest:
        data: Manifest = self.manifest["data"]
        return data

    @property
    def template(self) -> Manifest:
        template: Manifest = self.data["template"]
        return template

    @property
    def template_hash(self) -> str:
        return template_hash(self.template)

    @property
    def plan(self) -> Manifest:
        """`status.plan` of these pods."""
        plan: Manifest = self.data["plan"]
        return plan

    @property
    def vram_bytes(self) -> int:
        """What one replica takes of GPUs' memory; 0 on a CPU."""
        device = self.data["inputs"].get("device", Service.device)
        return parse_quantity(self.plan["budget"]) if device == "GPU" else 0


def find_revision(situation: Situation) -> Revision | None:
    """What the service was last rolled out with, or what still serves of this very spec.

    An edit that is taken back mid-way finds its pods as they were rendered then, whatever this
    operator, its settings or the nodes would make of that spec today.
    """
    rendered = _rendered(situation)
    if not rendered:
        return None
    newest = _read_revision(situation, rendered[-1], int(rendered[-1]["revision"]))
    if is_of_spec(newest, situation.service):
        return newest
    older = (_read_revision(situation, one, newest.number + 1) for one in reversed(rendered[:-1]))
    is_wanted = (one for one in older if is_of_spec(one, situation.service))
    return next((one for one in is_wanted if _serves(situation, one)), newest)


def running_revision(situation: Situation) -> Revision | None:
    """What the Deployment is set to; None where there is none, or nobody knows its template."""
    deployment = situation.observed.deployment
    if deployment is None:
        return None
    digest = template_hash(deployment["spec"]["template"])
    found = (_read_revision(situation, one, int(one["revision"])) for one in _rendered(situation))
    return next((one for one in found if one.template_hash == digest), None)


def serving_revisions(situation: Situation) -> list[Revision]:
    """What the pods that stay were made from, those of older templates included."""
    pods = situation.observed.pods
    digests = {template_hash(pod) for pod in pods if not is_leaving(pod) and not is_finished(pod)}
    found = (_read_revision(situation, one, int(one["revision"])) for one in _rendered(situation))
    return [one for one in found if one.template_hash in digests]


def _read_revision(situation: Situation, stored: Object, number: int) -> Revision:
    name, data = stored["metadata"]["name"], dict(stored["data"])
    return Revision(_build_manifest(situation.service, name, data, number))


def is_of_spec(revision: Revision | None, service: Service) -> bool:
    """Whether a revision was rendered from these fields."""
    return revision is not None and revision.data["inputs"] == rendered_fields(service)


def build_revision(
    situation: Situation, knowledge: ModelKnowledge, sizing: Sizing, newest: Revision | None
) -> Revision | None:
    """Render the spec anew, for a model that is known and fits."""
    if knowledge.inspection is None or sizing.fit is None:
        return None
    image = choose_image(situation, newest)
    inputs = TemplateInputs(
        fit=sizing.fit,
        image=image,
        model_revision=knowledge.inspection.revision,
        draft_revision=knowledge.draft.revision if knowledge.draft is not None else "",
        pin=sizing.pin,
        settings=situation.observed.settings,
    )
    data = {
        "inputs": rendered_fields(situation.service),
        "image": image,
        "modelRevision": inputs.model_revision,
        **({"draftRevision": inputs.draft_revision} if inputs.draft_revision else {}),
        "plan": sizing.fit.to_plan() | (sizing.nodes or {}),
        "template": build_pod_template(situation.service, inputs),
    }
    name = f"{situation.service.name}-{fingerprint(data, 10)}"
    number = newest.number + 1 if newest else 1
    return Revision(_build_manifest(situation.service, name, data, number))


def choose_image(situation: Situation, newest: Revision | None) -> str:
    """The pinned version, else what the service was rolled out with, else the default."""
    default = situation.observed.settings.runtime_image
    if situation.service.runtime_version:
        return f"{repository_of(default)}:{situation.service.runtime_version}"
    if newest is None:
        return default
    if not _is_pinned(newest.data) or _serves(situation, newest):
        return str(newest.data["image"])
    # A pinned version that never served is a mistake: with the pin gone, so is the image.
    unpinned = [one for one in _rendered(situation) if not _is_pinned(one["data"])]
    return str(unpinned[-1]["data"]["image"]) if unpinned else default


def _is_pinned(data: Object) -> bool:
    return "runtime_version" in data["inputs"]


def _serves(situation: Situation, revision: Revision) -> bool:
    pods = situation.observed.pods
    return any(is_ready(pod) and template_hash(pod) == revision.template_hash for pod in pods)


def _rendered(situation: Situation) -> list[Object]:
    """The ControllerRevisions that hold a template, oldest first."""
    known = situation.observed.revisions
    found = [entry for entry in known if "template" in (entry.get("data") or {})]
    return sorted(found, key=lambda entry: int(entry["revision"]))


def plan_history(situation: Situation, current: Revision) -> tuple[ObjectRef, ...]:
    """The revisions beyond the history, oldest first."""
    name = current.manifest["metadata"]["name"]
    others = [entry for entry in situation.observed.revisions if entry["metadata"]["name"] != name]
    others.sort(key=lambda entry: int(entry["revision"]))
    surplus = others[: max(0, len(others) - MOST_REVISIONS + 1)]
    return tuple(reference_to(entry, CONTROLLER_REVISION) for entry in surplus)


def rendered_fields(service: Service) -> Manifest:
    """The fields that render into the template; a default that is written out changes nothing."""
    written: Manifest = _to_json(service)
    return {name: value for name, value in written.items() if name not in _NOT_RENDERED}


def _to_json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        written = ((entry, getattr(value, entry.name)) for entry in fields(value))
        return {
            entry.name: _to_json(current)
            for entry, current in written
            if current != entry.default and current not in (None, {}, (), "")
        }
    if isinstance(value, Decimal):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _build_manifest(service: Service, name: str, data: Manifest, number: int) -> Manifest:
    return {
        "apiVersion": CONTROLLER_REVISION.api_version,
        "kind": CONTROLLER_REVISION.name,
        "metadata": build_metadata(service, name),
        "revision": number,
        "data": data,
    }
