"""A tag of an image is warned of, and which uri would always mean the same model is told."""

from dataclasses import replace
from typing import Any

import pytest

from forebay_operator.planned import Plan
from forebay_operator.planning import plan
from forebay_operator.planning.inspection.knowledge import describe_model
from observed_builder import (
    NOW,
    SMOLLM2,
    born,
    child,
    condition_of,
    job_pod,
    observed,
    service,
    terminated,
)

DIGEST = "sha256:" + "0123456789abcdef" * 4


def inspected(uri: str, image_ref: str = "", status: dict[str, Any] | None = None) -> Plan:
    """What is decided once a model was inspected by a pod that mounted an image."""
    raw = service(model={"uri": uri}, status=status)
    job = child(plan(observed(raw), NOW), "Job")
    assert job is not None
    mounts = [{"name": "model", "volumeStatus": {"image": {"imageRef": image_ref}}}]
    done = terminated(0, SMOLLM2.to_json(), "Completed")
    pod = job_pod(born(job), state=done, volumeMounts=mounts)
    return plan(observed(raw, jobs=(born(job),), job_pods=(pod,)), NOW)


def warnings(decided: Plan) -> list[str]:
    return [note.message for note in decided.notes if note.reason == "ModelTagIsMutable"]


@pytest.mark.parametrize(
    ("uri", "image_ref", "tag", "pinned"),
    [
        ("oci://reg.test/m:q4", "", "q4", None),
        ("oci://reg.test:5000/m", "", "latest", None),
        ("oci://reg.test/m:q4", f"reg.test/m@{DIGEST}", "q4", f"oci://reg.test/m@{DIGEST}"),
        ("oci://reg.test:5000/m", DIGEST, "latest", f"oci://reg.test:5000/m@{DIGEST}"),
        (f"oci://reg.test/m@{DIGEST}", "", "", f"oci://reg.test/m@{DIGEST}"),
        (f"oci://reg.test/m:q4@{DIGEST}", "", "", f"oci://reg.test/m@{DIGEST}"),
        ("hf://org/name@dev", "", "", f"hf://org/name@{SMOLLM2.revision}"),
        ("hf://org/name", "", "", f"hf://org/name@{SMOLLM2.revision}"),
        ("pvc://models/llama", "", "", None),
    ],
    ids=[
        "a tag",
        "no tag, and a port",
        "a tag whose digest the kubelet told",
        "no tag, a port, and a digest that the kubelet told",
        "a digest",
        "a tag and a digest",
        "a branch of a hub",
        "a hub",
        "a claim",
    ],
)
def test_a_tag_is_warned_of_and_what_is_pinned_is_not(
    uri: str, image_ref: str, tag: str, pinned: str | None
) -> None:
    decided = inspected(uri, image_ref)
    message = condition_of(decided, "ModelInspected")["message"]
    assert (decided.status or {})["model"].get("pinnedUri") == pinned
    assert [f"The tag {tag} may" in told for told in warnings(decided)] == [True] * bool(tag)
    assert all(told in message for told in warnings(decided))
    assert not tag or f"set spec.model.uri to {pinned or 'oci://reg.test'}" in message
    assert tag or "tag" not in message


@pytest.mark.parametrize(
    ("revision", "told"),
    [("sha256:00ff", "headers sha256:00ff."), ("c0ffee", "revision c0ffee.")],
    ids=["of files", "of a hub"],
)
def test_what_files_are_known_by_is_not_called_like_an_images_digest(
    revision: str, told: str
) -> None:
    assert describe_model(replace(SMOLLM2, revision=revision)).endswith(f"of weights, {told}")


def test_a_tag_is_told_once_and_what_is_known_of_it_stays() -> None:
    first = inspected("oci://reg.test/m:q4", f"reg.test/m@{DIGEST}")
    raw = service(model={"uri": "oci://reg.test/m:q4"}, status=first.status)
    later = plan(observed(raw), NOW)
    assert (later.status or {})["model"] == (first.status or {})["model"]
    assert condition_of(later, "ModelInspected") == condition_of(first, "ModelInspected")
    assert warnings(first) and not warnings(later)


def test_another_tag_is_told_again() -> None:
    first = inspected("oci://reg.test/m:q4")
    assert warnings(inspected("oci://reg.test/m:q5", status=dict(first.status or {})))
