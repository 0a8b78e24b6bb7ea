"""Each way in which a model cannot be had, from what the inspection meets to what status says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_hub import serve_hub
from forebay_budget.cli import main
from forebay_operator.planned import Plan
from forebay_operator.planning import plan
from model_files import TINY_LLAMA, write_hf_model
from observed_builder import (
    NOW,
    born,
    child,
    condition_of,
    job_pod,
    observed,
    says,
    service,
    terminated,
    unschedulable,
    waiting,
)

HUB = "hf://team/model"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HF_ENDPOINT", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("forebay_budget.hub_client.time.sleep", lambda seconds: None)


def inspect(folder: Path, model: str) -> str:
    """Run the Job's own command; what it leaves as its pod's last words."""
    message = folder / "termination-log"
    main(["inspect", model, "--termination-message", str(message)])
    return message.read_text()


def decide(uri: str, message: str, exit_code: int = 1) -> Plan:
    """What is decided once the inspection has ended with a message."""
    raw = service(model={"uri": uri})
    job = child(plan(observed(raw), NOW), "Job")
    assert job is not None
    pod = job_pod(born(job), state=terminated(exit_code, message))
    return plan(observed(raw, jobs=(born(job),), job_pods=(pod,)), NOW)


def check(decided: Plan, reason: str, words: str, is_passing: bool = False) -> None:
    """One reason and one sentence, on ModelInspected, Ready and one of kstatus's conditions."""
    assert says(decided, "ModelInspected") == ("False", reason)
    message = condition_of(decided, "ModelInspected")["message"]
    assert words in message and message[-1] in ".?" and "\n" not in message
    assert condition_of(decided, "Ready")["message"] == message
    assert says(decided, "Reconciling" if is_passing else "Stalled") == ("True", reason)
    assert child(decided, "Deployment") is None
    assert decided.look_again_seconds is not None, "it is tried again"


@pytest.mark.parametrize(
    ("uri", "hub", "told", "is_passing"),
    [
        ("hf://team/other", {}, ("ModelNotFound", "has no team/other@main; correct its"), False),
        (f"{HUB}@v9", {}, ("RevisionNotFound", "but not team/model@v9; name a branch"), False),
        (HUB, {"token": "t"}, ("AuthenticationRequired", "in a service, model.secretName"), False),
        (
            HUB,
            {"failures": [(403, {"X-Error-Code": "GatedRepo"})]},
            ("AccessDenied", "it is gated; ask for access on its page"),
            False,
        ),
        (HUB, {"failures": [(403, {})]}, ("AccessDenied", "the token has no right"), False),
        (HUB, {"failures": [(503, {})] * 9}, ("HubError", "answered 503"), True),
        (HUB, {"listing": "<html>"}, ("HubError", "is it a model hub?"), True),
    ],
    ids=[
        "no such model",
        "no such revision",
        "no token where one is needed",
        "gated",
        "a token without the right",
        "the hub is broken",
        "something else answers",
    ],
)
def test_what_a_hub_refuses_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    uri: str,
    hub: dict[str, Any],
    told: tuple[str, str],
    is_passing: bool,
) -> None:
    with serve_hub(write_hf_model(tmp_path / "hub"), **hub) as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        check(decide(uri, inspect(tmp_path, uri)), *told, is_passing)


def test_a_hub_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_hub(tmp_path) as gone:
        pass
    monkeypatch.setenv("HF_ENDPOINT", gone.url)
    check(decide(HUB, inspect(tmp_path, HUB)), "HubUnreachable", "cannot be reached for", True)


def bare(folder: Path) -> None:
    (folder / "README.md").write_text("nothing")


def pickled(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"x")


def foreign(folder: Path) -> None:
    write_hf_model(folder, TINY_LLAMA | {"architectures": ["MambaForCausalLM"]})


def cut(folder: Path) -> None:
    path = write_hf_model(folder) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:40])


def incomplete(folder: Path) -> None:
    write_hf_model(folder, TINY_LLAMA, num_shards=2)
    next(folder.glob("model-00002*")).unlink()


@pytest.mark.parametrize("scheme", ["hf", "pvc", "oci"])
@pytest.mark.parametrize(
    ("damage", "reason", "words"),
    [
        (bare, "NotAModel", "so it is no model"),
        (pickled, "NoSafetensors", "convert them to safetensors"),
        (foreign, "UnsupportedArchitecture", "MambaForCausalLM"),
        (cut, "BadSafetensors", "model.safetensors"),
        (incomplete, "IncompleteModel", "lacks 1 of the 2 shards"),
    ],
    ids=["no model", "pickled weights", "an unknown architecture", "a cut header", "a lost shard"],
)
def test_what_is_wrong_with_a_model_is_told_by_the_name_that_its_user_gave_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scheme: str,
    damage: Callable[[Path], None],
    reason: str,
    words: str,
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    damage(folder)
    uri = {"hf": HUB, "pvc": "pvc://models/llama", "oci": "oci://reg.test/m:1"}[scheme]
    with serve_hub(folder) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        message = inspect(tmp_path, uri if scheme == "hf" else str(folder))
    mounted = {"hf": "", "pvc": "/model/llama", "oci": "/model"}[scheme]
    decided = decide(uri, message.replace(str(folder), mounted))
    check(decided, reason, words)
    assert "/model/" not in condition_of(decided, "ModelInspected")["message"].replace(uri, "")


def test_a_path_that_a_claim_does_not_have_is_told(tmp_path: Path) -> None:
    message = inspect(tmp_path, str(tmp_path / "llama")).replace(str(tmp_path), "/model")
    decided = decide("pvc://models/llama", message)
    words = "There is no file or folder at pvc://models/llama; correct the path."
    check(decided, "ModelNotFound", words)


def stuck(uri: str, pod: dict[str, Any], **model: Any) -> Plan:
    raw = service(model={"uri": uri} | model)
    job = child(plan(observed(raw), NOW), "Job")
    assert job is not None
    job = born(job, created=-2)
    return plan(observed(raw, jobs=(job,), job_pods=(job_pod(job, **pod),)), NOW)


DISK = "failed to pull and unpack image: write /blobs: no space left on device"
NO_KEY = "couldn't find key token in Secret team-a/hf"


@pytest.mark.parametrize(
    ("uri", "pod", "reason", "words", "is_passing"),
    [
        (
            "oci://reg.test/m:1",
            {"state": waiting("ErrImagePull", f'pull "reg.test/m:1": {DISK}')},
            "NodeDiskFull",
            "Image reg.test/m:1 does not fit on its node's disk",
            False,
        ),
        (
            "oci://reg.test/m:1",
            {"state": waiting("ImagePullBackOff", 'Back-off pulling image "reg.test/m:1": 401')},
            "ImagePullFailed",
            "name its pull secret in spec.podTemplate.imagePullSecrets",
            False,
        ),
        (
            HUB,
            {"state": waiting("CreateContainerConfigError", 'secret "hf" not found')},
            "ContainerConfigError",
            "spec.model.secretName",
            False,
        ),
        (
            HUB,
            {"state": waiting("CreateContainerConfigError", NO_KEY)},
            "ContainerConfigError",
            "couldn't find key token in Secret team-a/hf",
            False,
        ),
        (
            "pvc://models",
            {"pod_status": unschedulable("pod has unbound immediate PersistentVolumeClaims")},
            "VolumeClaimUnbound",
            "is not bound to a volume",
            True,
        ),
        (
            "pvc://models",
            {"pod_status": unschedulable('persistentvolumeclaim "models" not found')},
            "VolumeClaimNotFound",
            "create it, or correct spec.model.uri",
            False,
        ),
    ],
    ids=[
        "no space for the image",
        "a private image",
        "the Secret is missing",
        "the Secret has no key token",
        "the claim is unbound",
        "the claim is missing",
    ],
)
def test_what_the_job_waits_for_is_told(
    uri: str, pod: dict[str, Any], reason: str, words: str, is_passing: bool
) -> None:
    check(stuck(uri, pod), reason, words, is_passing)


def test_an_inspection_out_of_memory_says_how_much_it_had() -> None:
    decided = stuck(HUB, {"state": terminated(137, reason="OOMKilled")})
    check(decided, "InspectionOutOfMemory", f"the headers of {HUB} took more than the 512Mi")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (
            {"kueue.x-k8s.io/queue-name": "gpus"},
            "is suspended until Kueue admits it to the queue gpus; see kubectl describe workloads",
        ),
        ({}, "is suspended by somebody; set spec.suspend of the Job to false"),
    ],
    ids=["by Kueue", "by nobody known"],
)
def test_a_suspended_job_is_told_and_goes_on(labels: dict[str, str], words: str) -> None:
    raw = service()
    job = child(plan(observed(raw), NOW), "Job")
    assert job is not None
    job = born(job, created=0)
    job["metadata"]["labels"] |= labels
    held = job | {"spec": job["spec"] | {"suspend": True}}
    decided = plan(observed(raw, jobs=(held,)), NOW)
    check(decided, "InspectionSuspended", words, is_passing=True)
    assert decided.deletions == ()
    later = plan(observed(raw | {"status": decided.status}, jobs=(job,)), NOW)
    assert says(later, "ModelInspected") == ("Unknown", "Inspecting")
