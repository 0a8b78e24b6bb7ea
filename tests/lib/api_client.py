"""Plain requests to a server under test, and its streams taken apart."""

import json
from typing import Any

import httpx

from server_process import ServerProcess


def post(server: ServerProcess, path: str, **body: Any) -> httpx.Response:
    """One POST of a JSON body."""
    return httpx.post(server.url + path, json=body, timeout=60)


def read_events(response: httpx.Response) -> list[str]:
    """The data of each event; comments are left out."""
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.split("\n\n")
    assert events.pop() == ""
    events = [event for event in events if not event.startswith(":")]
    assert all(event.startswith("data: ") for event in events)
    return [event.removeprefix("data: ") for event in events]


def read_chunks(response: httpx.Response) -> list[dict[str, Any]]:
    """The objects of a whole stream."""
    assert response.status_code == 200, response.text
    *events, last = read_events(response)
    assert last == "[DONE]"
    return [json.loads(event) for event in events]


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error, which has to be of the client's doing; its shape is checked for every test."""
    assert 400 <= response.status_code < 500, (response.status_code, response.text[:500])
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body.keys() == {"error"}, body
    error: dict[str, Any] = body["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str) and 0 < len(error["message"]) < 2000
    assert isinstance(error["type"], str)
    assert error["code"] is None or isinstance(error["code"], str)
    assert error["param"] is None or isinstance(error["param"], str)
    return error
