"""What an API server or a network does to single requests: the end is the undisturbed one."""

from collections import Counter

import pytest

from fault_proxy import LOST, UNANSWERED, Call, Fault, refuse
from faulted_stage import Stage
from operator_process import wait_until

pytestmark = pytest.mark.component

IMPATIENT = {
    "workqueue__FIRST_DELAY_SECONDS": 0.05,
    "workqueue__LONGEST_DELAY_SECONDS": 0.2,
    "worker__REFUSED_SECONDS": 0.2,
}
BUSY = refuse(429, "too many requests", Retry_After="1")
FAULTS = (
    refuse(429, "too many requests"),
    refuse(409, "the object has been modified"),
    refuse(500, "etcdserver: request timed out"),
    refuse(503, "apiserver is shutting down"),
    refuse(504, "etcdserver: leader changed"),
    LOST,
    UNANSWERED,
)


def test_every_write_may_meet_every_fault_once(stage: Stage) -> None:
    met: Counter[tuple[str, str]] = Counter()

    def rule(call: Call) -> Fault | None:
        if not call.is_write or "/events" in call.path:
            return None
        met[call.method, call.path] += 1
        turn = met[call.method, call.path] - 1
        if turn == 0 and call.plural == "deployments":
            return BUSY
        return FAULTS[turn] if turn < len(FAULTS) else None

    stage.proxy.rule = rule
    with stage.start(**IMPATIENT):
        stage.apply()
        stage.wait_ready()
        stage.expect_undisturbed()
    children = ("serviceaccounts", "services", "jobs", "controllerrevisions", "deployments")
    for plural in (*children, "inferenceservices"):
        assert any(plural in path and num >= len(FAULTS) for (_, path), num in met.items()), plural


@pytest.mark.long
def test_every_list_may_fail_at_first(stage: Stage) -> None:
    met: Counter[str] = Counter()

    def rule(call: Call) -> Fault | None:
        if call.method != "GET" or call.is_lease:
            return None
        met[call.path] += 1
        busy = refuse(503, "apiserver is shutting down")
        return {1: refuse(500), 2: busy}.get(met[call.path])

    stage.proxy.rule = rule
    again = {"controller__FILL_AGAIN_SECONDS": 0.1, "main__RETRY_SECONDS": 0.1}
    with stage.keep_running(**IMPATIENT, **again) as ends:
        stage.apply()
        stage.wait_ready()
        stage.expect_undisturbed()
    assert ends == [0]


@pytest.mark.long
def test_a_slow_api_server_only_takes_longer(stage: Stage) -> None:
    stage.proxy.rule = lambda call: Fault(delay_seconds=3.0 if call.is_lease else 0.3)
    with stage.start() as operator:
        stage.apply()
        stage.wait_ready()
        stage.expect_undisturbed()
        assert "Lease was not renewed" not in operator.log


@pytest.mark.long
def test_a_write_may_take_as_long_as_an_admission_webhook_may(stage: Stage) -> None:
    """Ten seconds is what Kubernetes gives a webhook unless it is told otherwise."""
    stage.proxy.rule = lambda call: (
        Fault(delay_seconds=6.0) if call.is_write and call.plural == "services" else None
    )
    with stage.start() as operator:
        stage.apply()
        stage.wait_ready()
        stage.expect_undisturbed()
        assert "API request failed" not in operator.log


def test_a_webhook_that_is_down_is_named_until_it_is_mended(stage: Stage) -> None:
    break_webhook(stage)
    with stage.start():
        stage.apply()
        failed = wait_until(
            "The webhook is named",
            lambda: (
                (found := stage.node.condition("smollm2", "PodsCreated")).get("reason")
                == "WebhookFailed"
                and found
            ),
        )
        assert "down.test.dev" in failed["message"]
        stage.kubectl("delete", "validatingwebhookconfiguration", stage.node.namespace)
        stage.wait_ready()
        stage.expect_undisturbed()


def break_webhook(stage: Stage) -> None:
    """Have the API server ask about each Deployment of the story, at an address that is dead."""
    label = {"kubernetes.io/metadata.name": stage.node.namespace}
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
    webhook = {
        "name": "down.test.dev",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "namespaceSelector": {"matchLabels": label},
        "rules": [{**rule, "operations": ["CREATE", "UPDATE"]}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    body = {"metadata": {"name": stage.node.namespace}, "webhooks": [webhook]}
    status, answer = stage.node.server.request("POST", path, body)
    if status != 201:
        raise RuntimeError(answer["message"])
