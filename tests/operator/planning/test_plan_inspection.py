"""A model is inspected before anything starts; a failure is told, and tried again ever later."""

import json
from dataclasses import replace
from typing import Any

import pytest

from forebay_operator.planned import ObjectRef, Plan
from forebay_operator.planning import plan
from observed_builder import (
    LLAMA_13B,
    NOW,
    SMOLLM2,
    at,
    born,
    child,
    condition,
    condition_of,
    job_pod,
    known_model,
    leaving,
    observed,
    says,
    service,
    terminated,
    text,
    unschedulable,
    waiting,
    warning,
)

ERROR = {"error": {"reason": "NotAModel", "message": "The image holds no model."}}


def wanted_job(**spec: Any) -> dict[str, Any]:
    job = child(plan(observed(service(**spec)), NOW), "Job")
    assert job is not None
    return job


def picture(job: dict[str, Any], *pods: dict[str, Any], **rest: Any) -> Plan:
    raw = service(status={"conditions": rest.pop("conditions", [])}, **rest.pop("spec", {}))
    now = at(rest.pop("now", 0))
    return plan(observed(raw, jobs=(job,), job_pods=pods, **rest), now)


def failing_since(seconds: float, generation: int = 1) -> dict[str, Any]:
    return condition("ModelInspected", "False", since=seconds, observedGeneration=generation)


def test_an_unknown_model_gets_an_account_and_a_job_and_nothing_that_serves() -> None:
    decided = plan(observed(), NOW)
    assert [one["kind"] for one in decided.children] == ["ServiceAccount", "Service", "Job"]
    assert says(decided, "ModelInspected") == ("Unknown", "Inspecting")
    assert says(decided, "Ready") == ("False", "Inspecting")
    assert says(decided, "Reconciling") == ("True", "Inspecting")


def test_the_job_is_bounded_and_can_do_nothing() -> None:
    job = wanted_job()
    assert job["spec"]["backoffLimit"] == 0
    assert job["spec"]["activeDeadlineSeconds"] == 1800
    assert job["spec"]["ttlSecondsAfterFinished"] > 0
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["resources"].keys() == {"requests", "limits"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert labels["forebay.dev/inspection-of"] == "smollm2"
    assert "forebay.dev/inference-service" not in {**labels, **job["metadata"]["labels"]}


def test_the_longest_names_give_jobs_whose_pods_can_carry_their_names_and_differ() -> None:
    names = set()
    for end in ("a", "b"):
        raw = service()
        raw["metadata"]["name"] = "n" * 49 + end
        job = child(plan(observed(raw), NOW), "Job")
        assert job is not None
        names.add(job["metadata"]["name"])
    assert {len(name) for name in names} == {63}
    assert len(names) == 2


@pytest.mark.parametrize(
    ("uri", "volume", "argument"),
    [
        (
            "oci://reg.test/m:1",
            {"image": {"reference": "reg.test/m:1"}},
            "/model",
        ),
        (
            "pvc://models",
            {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
            "/model",
        ),
        (
            "pvc://models/llama/7b",
            {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
            "/model/llama/7b",
        ),
        (
            "pvc://models/llama/7b.gguf",
            {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
            "/model/llama/7b.gguf",
        ),
    ],
    ids=["an image", "a claim's root", "a folder of a claim", "a file of a claim"],
)
def test_the_job_sees_the_model_where_the_pods_will(
    uri: str, volume: dict[str, Any], argument: str
) -> None:
    placement = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "pull"}],
    }
    pod = wanted_job(model={"uri": uri}, podTemplate=placement)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"name": "model", **volume} in pod["volumes"]
    mount = {"name": "model", "mountPath": "/model", "readOnly": True}
    assert mount in container["volumeMounts"]
    assert container["args"][:2] == ["inspect", argument]
    assert {name: pod[name] for name in placement} == placement


def test_a_private_hub_is_trusted_while_its_model_is_read() -> None:
    seen = observed(service(model={"uri": "hf://org/name"}))
    settings = replace(seen.settings, hub_ca="hub-ca")
    job = child(plan(replace(seen, settings=settings), NOW), "Job")
    assert job is not None
    pod = job["spec"]["template"]["spec"]
    mounted = [one["name"] for one in pod["containers"][0]["volumeMounts"]]
    assert "forebay-hub-ca" in mounted and "forebay-hub-ca" in str(pod["volumes"])
    trust = {"name": "SSL_CERT_FILE", "value": "/etc/forebay/hub/ca.crt"}
    assert trust in pod["containers"][0]["env"]


def test_a_hubs_model_is_read_from_anywhere_with_its_token() -> None:
    spec = {
        "model": {"uri": "hf://org/name@main", "secretName": "hf"},
        "podTemplate": {"nodeSelector": {"disk": "ssd"}, "imagePullSecrets": [{"name": "pull"}]},
    }
    pod = wanted_job(**spec)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    token = {"secretKeyRef": {"name": "hf", "key": "token"}}
    assert container["args"][:2] == ["inspect", "hf://org/name@main"]
    assert {"name": "HF_TOKEN", "valueFrom": token} in container["env"]
    assert "nodeSelector" not in pod and pod["imagePullSecrets"] == [{"name": "pull"}]


@pytest.mark.parametrize(
    "spec",
    [
        {"model": {"uri": "oci://reg.test/other:1"}},
        {"podTemplate": {"nodeSelector": {"disk": "ssd"}}},
        {"podTemplate": {"imagePullSecrets": [{"name": "pull"}]}},
    ],
    ids=["another model", "another place", "another pull secret"],
)
def test_what_may_change_the_answer_is_asked_at_once(spec: dict[str, Any]) -> None:
    old = born(wanted_job(), "old")
    failed = job_pod(old, state=terminated(message=json.dumps(ERROR)))
    decided = picture(old, failed, spec=spec, conditions=[failing_since(-5, generation=0)])
    job = child(decided, "Job")
    assert job is not None and job["metadata"]["name"] != old["metadata"]["name"]
    assert decided.deletions == (ObjectRef("batch/v1", "Job", old["metadata"]["name"], "old"),)
    assert says(decided, "ModelInspected") == ("Unknown", "Inspecting")


def test_what_a_successful_job_found_is_kept_and_used_in_the_same_decision() -> None:
    job = born(wanted_job())
    done = job_pod(job, state=terminated(0, SMOLLM2.to_json(), "Completed"))
    decided = picture(job, done)
    assert says(decided, "ModelInspected") == ("True", "Inspected")
    assert (decided.status or {})["model"] == {
        "uri": "oci://reg.test/smollm2:q4",
        "architecture": "LlamaForCausalLM",
        "numParameters": 134_515_008,
        "weightsBytes": SMOLLM2.weights_bytes,
        "revision": SMOLLM2.revision,
        "inspection": SMOLLM2.to_json(),
    }
    assert child(decided, "Deployment") is not None


def test_a_known_model_needs_no_job() -> None:
    decided = plan(observed(service(status={"model": known_model()})), NOW)
    assert child(decided, "Job") is None
    assert says(decided, "ModelInspected") == ("True", "Inspected")


@pytest.mark.parametrize(
    "model",
    [
        {"uri": "oci://reg.test/smollm2:q5"},
        {"uri": "hf://org/name@v1"},
        {"uri": "hf://org/name", "secretName": "other"},
    ],
    ids=["another image", "another revision", "another secret"],
)
def test_what_is_known_of_another_model_does_not_count(model: dict[str, str]) -> None:
    known = known_model("hf://org/name" if "hf" in model["uri"] else "oci://reg.test/smollm2:q4")
    decided = plan(observed(service(model=model, status={"model": known})), NOW)
    assert child(decided, "Job") is not None
    assert (decided.status or {})["model"] == known


@pytest.mark.parametrize(
    ("message", "reason", "sentence"),
    [
        (json.dumps(ERROR), "NotAModel", "The image holds no model."),
        ("Traceback\nOSError: broken", "InspectionFailed", "exited with code 1: OSError: broken."),
        ("", "InspectionFailed", "it left no last words"),
        ('{"error": 3}', "InspectionFailed", '{"error": 3}'),
        (
            '{"error": {"reason": "", "message": "No reason."}}',
            "InspectionFailed",
            "No reason.",
        ),
        ("[" * 4096, "InspectionFailed", "exited with code 1: [["),
    ],
    ids=["its own words", "a traceback", "silence", "something else", "no reason", "nesting"],
)
def test_a_failed_job_is_told(message: str, reason: str, sentence: str) -> None:
    job = born(wanted_job())
    decided = picture(job, job_pod(job, state=terminated(message=message)))
    assert says(decided, "ModelInspected") == ("False", reason)
    assert sentence in condition_of(decided, "ModelInspected")["message"]
    assert says(decided, "Ready") == ("False", reason)
    assert says(decided, "Stalled") == ("True", reason)


@pytest.mark.parametrize(
    ("uri", "written", "told"),
    [
        ("pvc://models/late", "/model/late does not exist.", "pvc://models/late does not exist."),
        ("pvc://models", "/model holds no model.", "pvc://models holds no model."),
        ("oci://reg.test/m:1", "/model/a.gguf is cut.", "oci://reg.test/m:1/a.gguf is cut."),
        ("hf://org/model", "hf://org/model is no model.", "hf://org/model is no model."),
    ],
    ids=["a path of a claim", "a claim's root", "a file of an image", "a hub's model"],
)
def test_a_failure_names_the_model_as_it_was_written(uri: str, written: str, told: str) -> None:
    error = json.dumps({"error": {"reason": "NotAModel", "message": written}})
    job = born(wanted_job(model={"uri": uri}))
    pod = job_pod(job, state=terminated(message=error))
    decided = picture(job, pod, spec={"model": {"uri": uri}})
    assert condition_of(decided, "ModelInspected")["message"] == told


@pytest.mark.parametrize(
    "message",
    ["{}", "", SMOLLM2.to_json()[:-9], "[" * 4096],
    ids=["something else", "nothing", "a cut result", "nesting without end"],
)
def test_an_unreadable_success_is_a_failure(message: str) -> None:
    job = born(wanted_job())
    decided = picture(job, job_pod(job, state=terminated(0, message)))
    assert says(decided, "ModelInspected") == ("False", "InspectionFailed")


def test_an_inspection_out_of_memory_says_so() -> None:
    job = born(wanted_job())
    decided = picture(job, job_pod(job, state=terminated(137, reason="OOMKilled")))
    assert says(decided, "ModelInspected") == ("False", "InspectionOutOfMemory")


def test_an_end_without_a_time_is_tried_again_too() -> None:
    """A kubelet that lost sight of a container says neither when it began nor when it ended."""
    job = born(wanted_job(), created=-30)
    lost = {"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": None}
    decided = picture(job, job_pod(job, state={"terminated": lost}))
    assert [one.name for one in decided.deletions] == [job["metadata"]["name"]]


TAKEN = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}


@pytest.mark.parametrize(
    "container",
    [{}, {"state": terminated(137)}],
    ids=["before its container ran", "while its container ran"],
)
def test_a_job_whose_pod_was_taken_from_its_node_is_told_and_tried_again(
    container: dict[str, Any],
) -> None:
    job = born(wanted_job())
    failed = condition("Failed", "True", "BackoffLimitExceeded", since=0)
    job["status"] = {"failed": 1, "conditions": [failed]}
    early = picture(job, job_pod(job, TAKEN, **container), now=1)
    assert says(early, "ModelInspected") == ("False", "Evicted")
    assert "The node was low on memory" in condition_of(early, "ModelInspected")["message"]
    assert early.deletions == ()
    late = picture(job, job_pod(job, TAKEN, **container), now=11)
    assert [one.name for one in late.deletions] == [job["metadata"]["name"]]


@pytest.mark.parametrize(
    "conditions",
    [[], [failing_since(-5)], [failing_since(-65)]],
    ids=["failing for the first time", "failing for no time", "failing for a minute"],
)
def test_a_fresh_failure_is_not_tried_again_yet(conditions: list[dict[str, Any]]) -> None:
    job = born(wanted_job())
    failed = job_pod(job, state=terminated(message=json.dumps(ERROR)))
    decided = picture(job, failed, conditions=conditions)
    assert decided.deletions == ()
    assert decided.look_again_seconds is not None and decided.look_again_seconds > 0


@pytest.mark.parametrize(
    ("since", "due"),
    [(-5, 10 - 5), (-65, 60 - 5), (-3600, 120 - 5)],
    ids=["ten seconds at first", "as long as it fails already", "two minutes at most"],
)
def test_the_delay_grows_with_the_time_that_it_fails(since: float, due: float) -> None:
    job = born(wanted_job())
    failed = job_pod(job, state=terminated(message=json.dumps(ERROR)))
    early = picture(job, failed, conditions=[failing_since(since)], now=due - 1)
    late = picture(job, failed, conditions=[failing_since(since)], now=due)
    assert early.deletions == () and early.look_again_seconds == pytest.approx(1)
    assert [one.uid for one in late.deletions] == ["job-uid"]
    assert child(late, "Job") is None, "its name is still taken"


def test_while_it_is_tried_again_the_failure_stays_told() -> None:
    raw = service(status={"conditions": [failing_since(-60) | {"reason": "NotAModel"}]})
    decided = plan(observed(raw), NOW)
    assert child(decided, "Job") is not None
    assert says(decided, "ModelInspected") == ("False", "NotAModel")
    assert condition_of(decided, "ModelInspected")["lastTransitionTime"] == text(-60)


def test_a_job_that_goes_on_by_itself_is_no_failure_any_more() -> None:
    job = born(wanted_job(), created=-60)
    pod = job_pod(job, state={"running": {}})
    decided = picture(job, pod, conditions=[failing_since(-50)])
    assert says(decided, "ModelInspected") == ("Unknown", "Inspecting")


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(9, ("Unknown", "Inspecting")), (10, ("False", "InspectionFailed"))],
    ids=["the pod's last words are waited for", "without them the Job's own word counts"],
)
def test_a_job_that_is_seen_to_fail_before_its_pod(seconds: float, told: tuple[str, str]) -> None:
    over = {"conditions": [condition("Failed", "True", "BackoffLimitExceeded", since=0)]}
    job = born(wanted_job(), status=over)
    decided = picture(job, job_pod(job, state={"running": {}}), now=seconds)
    assert says(decided, "ModelInspected") == told


def test_a_job_that_is_being_deleted_is_waited_for() -> None:
    decided = picture(leaving(born(wanted_job())))
    assert child(decided, "Job") is None and decided.deletions == ()


def test_a_success_that_nobody_read_is_asked_again() -> None:
    done = {"conditions": [condition("Complete", "True")]}
    decided = picture(born(wanted_job(), status=done))
    assert [one.uid for one in decided.deletions] == ["job-uid"]
    assert says(decided, "ModelInspected") == ("Unknown", "Inspecting")


def test_a_job_past_its_deadline_names_the_field() -> None:
    over = {"conditions": [condition("Failed", "True", "DeadlineExceeded", since=-1)]}
    decided = picture(born(wanted_job(), status=over))
    assert says(decided, "ModelInspected") == ("False", "InspectionTimedOut")
    assert "spec.startup.timeoutSeconds" in condition_of(decided, "ModelInspected")["message"]


def test_a_job_past_its_deadline_keeps_the_cause_that_was_seen_before() -> None:
    over = {"conditions": [condition("Failed", "True", "DeadlineExceeded", since=-1)]}
    seen = failing_since(-300) | {"reason": "ImagePullFailed"}
    decided = picture(born(wanted_job(), status=over), conditions=[seen])
    assert says(decided, "ModelInspected") == ("False", "ImagePullFailed")


NO_CLAIM = (
    '0/1 nodes are available: persistentvolumeclaim "models" not found. preemption: 0/1 nodes are '
    "available: 1 Preemption is not helpful for scheduling."
)


@pytest.mark.parametrize(
    ("pod", "reason", "sentence"),
    [
        (
            {"state": waiting("ErrImagePull", "reg.test/smollm2:q4: not found")},
            "ImagePullFailed",
            "The model's image reg.test/smollm2:q4 could not be pulled: reg.test/smollm2:q4: not "
            "found; correct spec.model.uri",
        ),
        (
            {
                "state": waiting(
                    "ImagePullBackOff",
                    'Back-off pulling image "reg.test/smollm2:q4": ErrImagePull: not found',
                )
            },
            "ImagePullFailed",
            "The model's image reg.test/smollm2:q4 could not be pulled: not found;",
        ),
        (
            {"state": waiting("ImagePullBackOff", 'Back-off pulling image "reg.test/operator:v1"')},
            "ImagePullFailed",
            "Image reg.test/operator:v1 could not be pulled",
        ),
        (
            {"pod_status": unschedulable(NO_CLAIM)},
            "VolumeClaimNotFound",
            "PersistentVolumeClaim models does not exist in namespace team-a",
        ),
        (
            {
                "pod_status": unschedulable(
                    "0/1 nodes are available: 1 Too many pods. preemption: no"
                )
            },
            "Unschedulable",
            "1 Too many pods; add or free such a node, or change spec.podTemplate.",
        ),
        (
            {"state": waiting("CreateContainerConfigError", 'secret "hf" not found')},
            "ContainerConfigError",
            'secret "hf" not found',
        ),
    ],
    ids=[
        "the model's image is missing",
        "the back-off repeats the cause",
        "the operator's image is missing",
        "the claim is missing",
        "no node has room",
        "the secret is missing",
    ],
)
def test_a_stuck_job_is_told_by_its_pod(pod: dict[str, Any], reason: str, sentence: str) -> None:
    job = born(wanted_job(), created=-2)
    decided = picture(job, job_pod(job, **pod))
    assert says(decided, "ModelInspected") == ("False", reason)
    assert sentence in condition_of(decided, "ModelInspected")["message"]


def test_a_stuck_pull_is_started_again_sooner_than_the_kubelet_would() -> None:
    job = born(wanted_job(), created=-10)
    pod = job_pod(job, state=waiting("ImagePullBackOff", "not found"))
    assert [one.uid for one in picture(job, pod).deletions] == ["job-uid"]


def test_a_pod_without_a_node_is_left_to_the_scheduler() -> None:
    job = born(wanted_job(), created=-600)
    decided = picture(job, job_pod(job, pod_status=unschedulable(NO_CLAIM)))
    assert decided.deletions == () and decided.look_again_seconds == 30


def test_a_volume_that_cannot_be_mounted_is_told_by_its_event() -> None:
    job = born(wanted_job())
    pod = job_pod(job, state=waiting("ContainerCreating"))
    event = warning("FailedMount", "MountVolume.SetUp failed: no such disk", "pod-of-job-uid")
    decided = picture(job, pod, warnings=(event,))
    assert says(decided, "ModelInspected") == ("False", "VolumeMountFailed")
    assert "no such disk" in condition_of(decided, "ModelInspected")["message"]


def test_a_job_whose_pod_is_refused_is_told_by_its_event() -> None:
    refused = 'Error creating: pods "x" is forbidden: exceeded quota: small'
    event = warning("FailedCreate", refused, "job-uid")
    decided = picture(born(wanted_job(), created=-3), warnings=(event,))
    assert says(decided, "ModelInspected") == ("False", "QuotaExceeded")


def test_a_pod_of_another_job_is_not_mistaken_for_its_own() -> None:
    job = born(wanted_job())
    other = job_pod(born(wanted_job(), "other"), state=terminated(0, LLAMA_13B.to_json()))
    assert says(picture(job, other), "ModelInspected") == ("Unknown", "Inspecting")
