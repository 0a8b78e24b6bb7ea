"""What schemathesis makes of /openapi.json: nothing is a 5xx, every refusal has OpenAI's shape."""

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from api_client import error_of
from server_process import ServerProcess

pytestmark = pytest.mark.component
POSTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/invocations",
    "/generate",
    "/tokenize",
    "/detokenize",
)
GETS = ("/v1/models", "/v1/models/{name}", "/health", "/ping", "/ready", "/load", "/version")


@pytest.fixture(scope="module")
def described(server: ServerProcess) -> Any:
    """The server's own description of itself."""
    return schemathesis.openapi.from_url(server.url + "/openapi.json")


def shorten(body: Any) -> Any:
    """Let no answer be longer than a token; what is no number of tokens stays as it is."""
    if isinstance(body, dict):
        for field in ("max_tokens", "max_completion_tokens"):
            if isinstance(body.get(field, 2), int | float | None):
                body[field] = 1
    return body


def check(operation: Any, http: httpx.Client, num_examples: int) -> None:
    """Send so many requests as the description allows them."""

    @settings(
        max_examples=num_examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def sends(case: schemathesis.Case) -> None:
        case.body = shorten(case.body)
        response = case.call(timeout=60)
        assert response.status_code < 500, response.text
        if response.status_code >= 400:
            error_of(httpx.Response(response.status_code, headers=JSON, text=response.text))

    sends()
    assert http.get("/health").status_code == 200


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("path", POSTS)
def test_no_body_is_a_server_error(described: Any, http: httpx.Client, path: str) -> None:
    check(described[path]["POST"], http, 8)


@pytest.mark.parametrize("path", GETS)
def test_no_path_is_a_server_error(described: Any, http: httpx.Client, path: str) -> None:
    check(described[path]["GET"], http, 3)


@pytest.mark.long
@pytest.mark.parametrize("path", POSTS)
def test_no_body_of_many_is_a_server_error(described: Any, http: httpx.Client, path: str) -> None:
    check(described[path]["POST"], http, 1000)
