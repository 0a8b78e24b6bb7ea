"""GET /openapi.json: the API described by the very types that it is checked with.

No page shows it: such pages load scripts from elsewhere.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from forebay_runtime.server.api.answers import ErrorAnswer
from forebay_runtime.server.api.endpoint import Endpoint

_REF = "#/components/schemas/{model}"
_WHY = {
    400: "The request cannot be served as it is",
    404: "There is no such model",
    408: "The request took longer than it, or the server, allows",
    413: "The body is too large",
    415: "The body is not JSON",
    429: "The queue is full",
    500: "The engine failed",
    503: "Not now: the server loads, drains or has failed",
}
_RETRIED = (429, 503)


def describe(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The OpenAPI document of some endpoints."""
    kinds: list[tuple[str, Any, TypeAdapter[Any]]] = [
        ("error", "serialization", TypeAdapter(ErrorAnswer)),
        *((_taken(e), "validation", TypeAdapter(e.body)) for e in endpoints if e.body),
        *((_given(e), "serialization", TypeAdapter(e.answer)) for e in endpoints if e.answer),
    ]
    refs, definitions = TypeAdapter.json_schemas(kinds, ref_template=_REF)
    schemas = {name: schema for (name, _), schema in refs.items()}
    paths = {
        endpoint.path.replace(":path", ""): {
            method.lower(): _operation(endpoint, schemas, method) for method in endpoint.methods
        }
        for endpoint in endpoints
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Forebay", "version": importlib.metadata.version("forebay")},
        "paths": paths,
        "components": {"schemas": definitions.get("$defs", {})},
    }


def _taken(endpoint: Endpoint) -> str:
    return endpoint.path + " takes"


def _given(endpoint: Endpoint) -> str:
    return endpoint.path + " gives"


def _operation(endpoint: Endpoint, schemas: dict[str, Any], method: str) -> dict[str, Any]:
    is_first = method == endpoint.methods[0]
    operation: dict[str, Any] = {
        "operationId": endpoint.handler.__name__ + ("" if is_first else f"_by_{method.lower()}"),
        "summary": (endpoint.handler.__doc__ or "").strip(),
        "responses": {"200": _success(endpoint, schemas)},
    }
    for status in endpoint.errors:
        operation["responses"][str(status)] = _failure(endpoint, status, schemas)
    if endpoint.body is not None:
        content = {"application/json": {"schema": schemas[_taken(endpoint)]}}
        operation["requestBody"] = {"required": True, "content": content}
    if "{name" in endpoint.path:
        operation["parameters"] = [
            {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        ]
    return operation


def _success(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    text = {"schema": {"type": "string"}}
    if endpoint.answer is None:
        return {"description": "Text", "content": {"text/plain": text}}
    content = {"application/json": {"schema": schemas[_given(endpoint)]}}
    if endpoint.streams:
        content["text/event-stream"] = text
    return {"description": "The answer", "content": content}


def _failure(endpoint: Endpoint, status: int, schemas: dict[str, Any]) -> dict[str, Any]:
    is_probe = not endpoint.path.startswith("/v1") and endpoint.body is None
    schema = schemas[_given(endpoint)] if is_probe else schemas["error"]
    failure: dict[str, Any] = {
        "description": _WHY[status],
        "content": {"application/json": {"schema": schema}},
    }
    if status in _RETRIED and not is_probe:
        seconds = {"schema": {"type": "integer"}, "description": "Seconds to wait"}
        failure["headers"] = {"Retry-After": seconds}
    return failure
