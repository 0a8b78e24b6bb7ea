"""How tests read what the server says: streams of events, and errors in OpenAI's shape."""

import json
from typing import Any

import httpx

ERROR_FIELDS = {"message", "type", "param", "code"}


def parse_events(text: str) -> list[dict[str, Any]]:
    """The JSON of each event of a stream, which has to end with [DONE]; comments are left out."""
    lines = [line for line in text.split("\n") if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines), text
    payloads = [line.removeprefix("data: ") for line in lines]
    assert payloads[-1] == "[DONE]" and payloads.count("[DONE]") == 1, text
    return [json.loads(payload) for payload in payloads[:-1]]


def check_error(response: httpx.Response) -> dict[str, Any]:
    """The error of an answer, which has to be one, of the client's doing, in OpenAI's shape."""
    assert 400 <= response.status_code < 500, (response.status_code, response.text[:500])
    assert response.headers["content-type"] == "application/json"
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == ERROR_FIELDS
    assert isinstance(error["message"], str) and 0 < len(error["message"]) < 2000
    assert isinstance(error["type"], str)
    assert error["param"] is None or isinstance(error["param"], str)
    assert error["code"] is None or isinstance(error["code"], str)
    return error
