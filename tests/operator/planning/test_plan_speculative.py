"""Proposing is rendered into the runtime's flag; a draft model is known, sized and mounted."""

import json
from dataclasses import replace
from typing import Any

import pytest

from forebay_budget.draft import find_draft_fault
from forebay_budget.quantity import parse_quantity
from forebay_budget.speculative_config import SpeculativeConfig, parse_speculative_config
from forebay_operator.observed import PodLoad, Settings
from forebay_operator.planned import Plan
from forebay_operator.planning import plan
from forebay_operator.service_parser import SpecError, parse_service
from observed_builder import (
    NOW,
    SMOLLM2,
    born,
    child,
    condition_of,
    gpu_node,
    job_pod,
    known_model,
    observed,
    pod,
    says,
    service,
    terminated,
)

DRAFT = replace(
    SMOLLM2, config=replace(SMOLLM2.config, num_layers=3), revision="sha256:fedcba9876543210"
)
DRAFT_URI = "oci://reg.test/draft:v1"
BOTH = {"model": known_model(), "draft": known_model(DRAFT_URI, DRAFT)}


def decide(speculative: dict[str, Any], status: dict[str, Any] | None = None, **spec: Any) -> Plan:
    raw = service(status=status or BOTH, engine={"speculative": speculative}, **spec)
    return plan(observed(raw, nodes=(gpu_node("a", 16384, 8),)), NOW)


def template_of(decided: Plan) -> dict[str, Any]:
    deployment = child(decided, "Deployment")
    assert deployment is not None
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def flag_of(decided: Plan) -> SpeculativeConfig | None:
    """What the runtime makes of the flag; None where there is none."""
    name = "--speculative-config="
    args = template_of(decided)["containers"][0]["args"]
    found = [arg.removeprefix(name) for arg in args if arg.startswith(name)]
    return parse_speculative_config(found[0]) if found else None


FLAGS: dict[str, tuple[dict[str, Any], SpeculativeConfig | None]] = {
    "nothing": ({}, None),
    "n-grams": ({"method": "ngram"}, SpeculativeConfig("ngram", 5, None, 2, 5)),
    "more n-grams": (
        {"method": "ngram", "numTokens": 8},
        SpeculativeConfig("ngram", 8, None, 2, 5),
    ),
    "a draft model": ({"model": DRAFT_URI}, SpeculativeConfig("draft_model", 5, "/draft")),
    "a draft model in a claim": (
        {"method": "draft_model", "model": "pvc://claim/a/b", "numTokens": 3},
        SpeculativeConfig("draft_model", 3, "/draft/a/b"),
    ),
    "a draft model on the hub, at its commit": (
        {"model": "hf://org/draft@main"},
        SpeculativeConfig("draft_model", 5, f"hf://org/draft@{DRAFT.revision}"),
    ),
}


@pytest.mark.parametrize(("speculative", "meant"), FLAGS.values(), ids=FLAGS)
def test_the_runtime_is_told(speculative: dict[str, Any], meant: SpeculativeConfig | None) -> None:
    known = known_model(speculative.get("model", DRAFT_URI), DRAFT)
    assert flag_of(decide(speculative, BOTH | {"draft": known})) == meant


def test_a_draft_model_is_a_volume_beside_the_models() -> None:
    template = template_of(decide({"model": DRAFT_URI}))
    volumes = {one["name"]: one for one in template["volumes"]}
    assert volumes["model"]["image"] == {"reference": "reg.test/smollm2:q4"}
    assert volumes["draft"]["image"] == {"reference": "reg.test/draft:v1"}
    mounts = {one["name"]: one for one in template["containers"][0]["volumeMounts"]}
    assert mounts["draft"] == {"name": "draft", "mountPath": "/draft", "readOnly": True}


def test_a_draft_model_on_the_hub_gets_the_hub_and_its_token() -> None:
    uri = "hf://org/draft"
    known = BOTH | {"draft": known_model(uri, DRAFT) | {"secretName": "token"}}
    raw = service(
        status=known | {"model": known_model("hf://org/model") | {"secretName": "token"}},
        model={"uri": "hf://org/model", "secretName": "token"},
        engine={"speculative": {"model": uri}},
    )
    settings = Settings("reg.test/runtime:v1", "reg.test/operator:v1", hub_ca="ca")
    picture = replace(observed(raw), settings=settings)
    template = template_of(plan(picture, NOW))
    names = [variable["name"] for variable in template["containers"][0]["env"]]
    assert names.count("HF_TOKEN") == 1
    volumes = [volume["name"] for volume in template["volumes"]]
    assert volumes.count("forebay-hub-ca") == 1
    assert "forebay-cache" in volumes


@pytest.mark.parametrize("device", ["CPU", "GPU"])
def test_both_models_are_sized(device: str) -> None:
    plain = decide({}, device=device).status
    status = decide({"model": DRAFT_URI}, device=device).status
    assert plain is not None and status is not None
    terms = status["plan"]
    assert parse_quantity(terms["draftWeights"]) > 0
    assert parse_quantity(terms["draftKvCache"]) > 0
    assert "draftWeights" not in plain["plan"]
    assert "draft model's weights" in terms["explanation"]
    if device == "CPU":
        assert parse_quantity(terms["budget"]) > parse_quantity(plain["plan"]["budget"])


def test_nothing_serves_before_both_are_known() -> None:
    decided = decide({"model": DRAFT_URI}, {"model": known_model()})
    assert child(decided, "Deployment") is None
    assert says(decided, "ModelInspected") == ("Unknown", "Inspecting")
    job = child(decided, "Job")
    assert job is not None
    assert job["metadata"]["labels"]["forebay.dev/inspected"] == "draft"
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][:2] == ["inspect", "/draft"]
    assert decided.status is not None
    assert decided.status["model"]["uri"] == "oci://reg.test/smollm2:q4"


def test_both_are_read_at_once_by_a_job_each() -> None:
    raw = service(engine={"speculative": {"model": DRAFT_URI}})
    jobs = [one for one in plan(observed(raw), NOW).children if one["kind"] == "Job"]
    assert len({job["metadata"]["name"] for job in jobs}) == 2
    # Neither is in the other's way.
    born_jobs = tuple(born(job, uid=f"job-{place}") for place, job in enumerate(jobs))
    later = plan(observed(raw, jobs=born_jobs), NOW)
    assert later.deletions == ()
    assert sum(one["kind"] == "Job" for one in later.children) == 2


def read_draft(message: str, exit_code: int = 0) -> Plan:
    """What is decided once the draft's Job has ended with such words."""
    raw = service(status={"model": known_model()}, engine={"speculative": {"model": DRAFT_URI}})
    job = child(plan(observed(raw), NOW), "Job")
    assert job is not None
    job = born(job, uid="job")
    ended = job_pod(job, state=terminated(exit_code, message, reason="Completed"))
    return plan(observed(raw, jobs=(job,), job_pods=(ended,)), NOW)


def test_what_the_job_read_is_kept_and_served() -> None:
    decided = read_draft(DRAFT.to_json())
    assert decided.status is not None
    assert decided.status["draft"]["uri"] == DRAFT_URI
    assert decided.status["draft"]["revision"] == DRAFT.revision
    assert flag_of(decided) == SpeculativeConfig("draft_model", 5, "/draft")
    revision = child(decided, "ControllerRevision")
    assert revision is not None
    assert revision["data"]["draftRevision"] == DRAFT.revision


def test_a_draft_model_that_cannot_be_read_is_named() -> None:
    message = json.dumps({"error": {"reason": "NotAModel", "message": "/draft holds no model."}})
    decided = read_draft(message, exit_code=1)
    assert says(decided, "ModelInspected") == ("False", "NotAModel")
    told = condition_of(decided, "ModelInspected")["message"]
    assert told == f"The draft model {DRAFT_URI}: {DRAFT_URI} holds no model."


def test_a_draft_model_of_another_vocabulary_does_not_fit() -> None:
    other = replace(DRAFT, config=replace(DRAFT.config, vocab_size=32000))
    assert find_draft_fault(SMOLLM2.config, other.config, "x") is not None
    decided = decide({"model": DRAFT_URI}, BOTH | {"draft": known_model(DRAFT_URI, other)})
    assert says(decided, "Fits") == ("False", "InvalidField")
    assert "engine.speculative.model" in condition_of(decided, "Fits")["message"]


def test_another_draft_model_is_another_template() -> None:
    first = template_of(decide({"model": DRAFT_URI}))
    uri = "oci://reg.test/draft:v2"
    second = template_of(decide({"model": uri}, BOTH | {"draft": known_model(uri, DRAFT)}))
    assert first != second


def test_a_draft_model_that_is_asked_for_no_more_is_forgotten() -> None:
    decided = decide({"method": "ngram"})
    assert decided.status is not None
    assert "draft" not in decided.status


def test_measured_memory_has_the_draft_models_terms() -> None:
    first = decide({"model": DRAFT_URI})
    assert first.status is not None
    terms = ("weights", "kvCache", "activation", "overhead", "draftWeights", "draftKvCache")
    planned = {term: parse_quantity(first.status["plan"][term]) for term in terms}
    deployment = child(first, "Deployment")
    assert deployment is not None
    digest = deployment["spec"]["template"]["metadata"]["labels"]["forebay.dev/template-hash"]
    revision = child(first, "ControllerRevision")
    raw = service(status=BOTH, engine={"speculative": {"model": DRAFT_URI}})
    picture = observed(
        raw,
        deployment=born(deployment),
        revisions=(revision,),
        pods=(pod(ready=True, template=digest),),
        loads={"uid-smollm2-1": PodLoad(True, memory_bytes=planned, device="cpu")},
    )
    status = plan(picture, NOW).status
    assert status is not None
    assert {one["name"] for one in status["memory"]["terms"]} == set(terms)


@pytest.mark.parametrize(
    ("speculative", "message"),
    [
        pytest.param({"method": "eagle"}, "spec.engine.speculative.method", id="method"),
        pytest.param({"method": "draft_model"}, "needs the uri", id="no-uri"),
        pytest.param({"method": "ngram", "model": "hf://a/b"}, "takes none", id="ngram-uri"),
        pytest.param({"model": "draft"}, "spec.engine.speculative.model is", id="no-scheme"),
    ],
)
def test_what_cannot_be_meant_is_said(speculative: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_service(service(engine={"speculative": speculative}))
