"""Tokens that expire, in an operator that has its credentials as a pod has them."""

import time
from pathlib import Path

import pytest

from fault_proxy import Call, Fault, refuse
from faulted_stage import USER, Stage

pytestmark = pytest.mark.component

IN_CLUSTER = "kubernetes__aio__config__incluster_config__SERVICE"


@pytest.fixture
def credentials(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Constants for an operator that finds a token where a pod's would be."""
    host, _, port = stage.proxy.url.removeprefix("https://").rpartition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    token = tmp_path / "token"
    token.write_text(stage.token)
    trusted = stage.node.server.folder / "ca.crt"
    return {
        f"{IN_CLUSTER}_TOKEN_FILENAME": str(token),
        f"{IN_CLUSTER}_CERT_FILENAME": str(trusted),
    }


def test_a_token_that_expires_before_its_file_is_renewed_ends_nothing(
    stage: Stage, tmp_path: Path, credentials: dict[str, str]
) -> None:
    def rule(call: Call) -> Fault | None:
        return refuse(401, "Unauthorized") if call.token == stage.token else None

    with stage.keep_running(**credentials) as ends:
        stage.settle()
        stage.proxy.rule = rule
        stage.proxy.cut_watches()
        stage.kubectl("delete", "service/smollm2", "--wait=false")
        time.sleep(2)
        server = stage.node.server
        renewed = server.kubectl("create", "token", USER, "--duration=2h").stdout.strip()
        (tmp_path / "token").write_text(renewed)
        stage.expect_undisturbed()
    assert renewed != stage.token
    assert ends == [0]


@pytest.mark.long
def test_an_api_server_that_knows_no_token_for_a_moment_ends_nothing(
    stage: Stage, credentials: dict[str, str]
) -> None:
    """It may, while it starts."""
    with stage.keep_running(**credentials) as ends:
        stage.settle()
        stage.proxy.rule = lambda call: refuse(401, "Unauthorized")
        stage.proxy.cut_watches()
        stage.kubectl("delete", "service/smollm2", "--wait=false")
        time.sleep(2)
        stage.proxy.rule = lambda call: None
        stage.expect_undisturbed()
    assert ends == [0]
