"""The VRAMQuota's schema against a real API server: what it takes, refuses and explains."""

from typing import Any

import pytest

from api_server import ApiServer
from forebay_operator.quota_entries import budget_of

pytestmark = pytest.mark.component

PATH = "/apis/forebay.dev/v1alpha1/namespaces/default/vramquotas?dryRun=All"


def ask(api_server: ApiServer, spec: Any) -> tuple[int, dict[str, Any]]:
    """Create a quota that is not kept."""
    kind = {"apiVersion": "forebay.dev/v1alpha1", "kind": "VRAMQuota"}
    return api_server.request("POST", PATH, {**kind, "metadata": {"name": "gpus"}, "spec": spec})


@pytest.mark.parametrize(
    ("budget", "num_bytes"),
    [("320Gi", 320 * 2**30), ("0", 0), ("1.5Ti", 3 * 2**39), ("80e9", 80 * 10**9), ("1Ei", 2**60)],
)
def test_a_budget_is_taken_and_read(api_server: ApiServer, budget: str, num_bytes: int) -> None:
    status, answer = ask(api_server, {"budget": budget})
    assert status == 201, answer
    assert budget_of(answer) == num_bytes


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"budget": "-1Gi"}, "a quantity of bytes from 0 to 1Ei"),
        ({"budget": "2Ei"}, "a quantity of bytes from 0 to 1Ei"),
        ({"budget": "much"}, "a quantity of bytes from 0 to 1Ei"),
        ({"budget": 320}, "spec.budget"),
        ({}, "spec.budget: Required value"),
    ],
    ids=["below nothing", "beyond everything", "no quantity", "a bare number", "none"],
)
def test_what_is_no_budget_is_refused(api_server: ApiServer, spec: Any, words: str) -> None:
    status, answer = ask(api_server, spec)
    assert status == 422
    assert words in answer["message"]


def test_kubectl_explains_that_it_is_no_security_boundary(api_server: ApiServer) -> None:
    said = " ".join(api_server.kubectl("explain", "vramquotas.forebay.dev").stdout.split())
    assert "no security boundary" in said
    assert "requests.nvidia.com/gpu" in said
