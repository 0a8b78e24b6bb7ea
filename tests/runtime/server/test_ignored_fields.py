"""A field that nobody knows changes nothing, and is named in a header of the answer."""

import json
from typing import Any

import httpx
import pytest

from api_client import post, read_chunks
from forebay_runtime.server.api.bodies.body import parse_body
from forebay_runtime.server.api.bodies.chat import ChatBody
from forebay_runtime.server.api.ignored import HEADER, list_ignored
from server_process import ServerProcess

HELLO = {"role": "user", "content": "hello"}


def names_in(template: str = "", **fields: Any) -> list[str]:
    body = json.dumps({"messages": [HELLO]} | fields).encode()
    return list_ignored(parse_body(ChatBody, body), template)


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, []),
        ({"max_token": 3, "min_characters": None}, ["max_token"]),
        ({"metadata": {}, "best_of": 1, "seed": 1}, []),
        ({"stream": True, "stream_options": {"colour": 1}}, ["stream_options.colour"]),
        ({"messages": [HELLO | {"mood": 1}] * 3}, ["messages.mood"]),
        ({"messages": [HELLO | {"name": "x", "tool_calls": []}]}, []),
        ({"a\r\nSet-Cookie: b": 1, "é,": 2}, ["a??Set-Cookie:?b", "??"]),
        ({"x" * 99: 1}, ["x" * 64]),
        ({f"field_{i}": i for i in range(50)}, [f"field_{i}" for i in range(20)]),
    ],
    ids=["none", "typo", "known", "option", "message", "read", "no-ascii", "long", "many"],
)
def test_fields_that_nobody_knows_are_named(fields: dict[str, Any], names: list[str]) -> None:
    assert names_in(**fields) == names


def test_a_field_that_the_template_reads_is_known() -> None:
    assert names_in("{{ message.mood }}", messages=[HELLO | {"mood": 1, "hue": 2}]) == [
        "messages.hue"
    ]


@pytest.mark.parametrize(
    ("template", "choice", "names"),
    [
        ("{{ messages }}", "auto", ["tools"]),
        ("{{ messages }} {{ tools }}", "auto", []),
        # A call that must be made is made, whatever the template shows.
        ("{{ messages }}", "required", []),
    ],
    ids=["unseen", "seen", "required"],
)
def test_tools_that_the_model_never_sees_are_named(
    template: str, choice: str, names: list[str]
) -> None:
    tools = [{"type": "function", "function": {"name": "look"}}]
    assert names_in(template, tools=tools, tool_choice=choice) == names


def complete(server: ServerProcess, **fields: Any) -> httpx.Response:
    return post(server, "/v1/completions", **({"prompt": "ab", "max_tokens": 2} | fields))


@pytest.mark.component
@pytest.mark.parametrize(
    ("fields", "status"),
    [({}, 200), ({"stream": True}, 200), ({"prompt": ""}, 400)],
    ids=["whole", "stream", "error"],
)
def test_the_header_comes_with_every_kind_of_answer(
    server: ServerProcess, fields: dict[str, Any], status: int
) -> None:
    response = complete(server, max_token=1, colour="red", **fields)
    assert response.status_code == status
    assert response.headers[HEADER] == "max_token,colour"


@pytest.mark.component
def test_an_unknown_field_changes_no_answer(server: ServerProcess) -> None:
    plain, strange = complete(server, stream=True), complete(server, stream=True, mood=[{}])
    texts = [[c["choices"] for c in read_chunks(response)] for response in (plain, strange)]
    assert texts[0] == texts[1]
    assert HEADER not in plain.headers
