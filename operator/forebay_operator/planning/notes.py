"""Events for `kubectl describe`: one for each transition from the previous status to this one."""

from typing import Any

from forebay_operator.planned import Note
from forebay_operator.planning.inspection.pin import warn_of_tag
from forebay_operator.planning.rollout.pace import REPLACING
from forebay_operator.planning.scaling.report import Decision
from forebay_operator.planning.situation import Manifest, Situation, find_condition

_ANNOUNCED = ("ModelInspected", "Fits", "Admitted", "Ready")
"""Conditions whose turn to True is worth an Event."""


def write_notes(
    situation: Situation, status: Manifest, decision: Decision | None
) -> tuple[Note, ...]:
    """What changed, in few words; nothing where nothing did."""
    before, after = situation.previous.get("conditions"), status["conditions"]
    notes = [_announce(before, after, kind) for kind in _ANNOUNCED]
    notes.append(_warn(before, after))
    notes.append(_announce_replacing(before, after))
    notes.append(_warn_of_tag(situation, status))
    if decision is not None:
        notes.append(Note("Normal", "Scaled", _tell_decision(decision)))
    return tuple(note for note in notes if note is not None)


def _tell_decision(decision: Decision) -> str:
    replicas = "1 replica" if decision.num_replicas == 1 else f"{decision.num_replicas} replicas"
    return f"Scaled to {replicas}: {decision.message}"


def _announce(before: Any, after: Any, condition_type: str) -> Note | None:
    was, now = find_condition(before, condition_type), find_condition(after, condition_type)
    if now.get("status") != "True" or was.get("status") == "True":
        return None
    return Note("Normal", now["reason"], now["message"])


def _announce_replacing(before: Any, after: Any) -> Note | None:
    """Said before the first pod goes, once for each generation."""
    was, now = find_condition(before, "Progressing"), find_condition(after, "Progressing")
    names = ("reason", "observedGeneration")
    is_new = any(was.get(name) != now.get(name) for name in names)
    if now.get("reason") != REPLACING or not is_new:
        return None
    return Note("Warning", REPLACING, now["message"])


def _warn_of_tag(situation: Situation, status: Manifest) -> Note | None:
    """Once for each image that is named by a tag, when it was inspected."""
    was, now = situation.previous.get("model") or {}, status.get("model") or {}
    model = situation.service.model
    warning = warn_of_tag(model, now.get("pinnedUri", ""))
    is_new = now.get("uri") == model.uri != was.get("uri")
    return Note("Warning", "ModelTagIsMutable", warning) if warning and is_new else None


def _warn(before: Any, after: Any) -> Note | None:
    """A new reason to stall, or to wait for something that fails."""
    now = find_condition(after, "Ready")
    was = find_condition(before, "Ready")
    is_failure = any(
        entry["status"] == "False" and entry["reason"] == now["reason"]
        for entry in after
        if entry["type"] in ("ModelInspected", "Fits", "Admitted", "PodsCreated", "Progressing")
    )
    is_new = was.get("reason") != now["reason"]
    if now["status"] == "True" or not is_failure or not is_new:
        return None
    return Note("Warning", now["reason"], now["message"])
