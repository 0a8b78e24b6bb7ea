"""Headers of answers: the request's name, and which pages may read them."""

from pathlib import Path

import httpx
import openai
import pytest

from server_process import ServerProcess, fake_server

pytestmark = pytest.mark.component
BODY = {"prompt": "a", "max_tokens": 1}
PAGE = "https://chat.example"


def post(server: ServerProcess, fields: dict[str, object], **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(server.url + "/v1/completions", json=BODY | fields, headers=named)


@pytest.mark.parametrize(
    ("given", "told"), [("abc-1", "abc-1"), ("x" * 999, "x" * 256)], ids=["short", "long"]
)
def test_a_request_is_called_what_its_client_says(
    server: ServerProcess, given: str, told: str
) -> None:
    answer = post(server, {}, x_request_id=given)
    assert (answer.headers["x-request-id"], answer.json()["id"]) == (told, "cmpl-" + told)
    for fields in ({"stream": True}, {"temperature": -1}):
        assert post(server, fields, x_request_id=given).headers["x-request-id"] == told


def test_a_request_without_a_name_gets_one(server: ServerProcess) -> None:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0) as client:
        answers = [
            client.completions.create(model="fake", prompt="a", max_tokens=1) for _ in range(2)
        ]
    assert [f"cmpl-{answer._request_id}" for answer in answers] == [each.id for each in answers]
    assert answers[0].id != answers[1].id


def test_no_page_may_ask_unless_it_is_let(server: ServerProcess) -> None:
    assert "access-control-allow-origin" not in post(server, {}, origin=PAGE).headers


def test_pages_of_allowed_origins_may_ask_and_read_refusals_too(tmp_path: Path) -> None:
    with fake_server(tmp_path, {"load_seconds": 2.0}, allowed_origins=[PAGE]) as server:
        asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
        asked["Access-Control-Request-Headers"] = "authorization,content-type"
        preflight = httpx.options(server.url + "/v1/chat/completions", headers=asked)
        assert preflight.status_code == 200
        assert "POST" in preflight.headers["access-control-allow-methods"]
        answers = [preflight, post(server, {}, origin=PAGE)]
        server.wait_ready()
        answers += [post(server, fields, origin=PAGE) for fields in ({}, {"n": 0})]
        assert [answer.status_code for answer in answers] == [200, 503, 200, 400]
        assert {answer.headers["access-control-allow-origin"] for answer in answers} == {PAGE}
        other = post(server, {}, origin="https://elsewhere.example")
        assert "access-control-allow-origin" not in other.headers
