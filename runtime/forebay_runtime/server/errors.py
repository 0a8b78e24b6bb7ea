"""What a client can be told went wrong, always in OpenAI's shape.

    ApiError
     ├─ BadRequest      400  the request itself
     ├─ ModelNotFound   404
     ├─ RequestTimedOut 408  longer than the request or --max-request-seconds allows
     ├─ BodyTooLarge    413
     ├─ WrongMediaType  415
     ├─ QueueFull       429  with Retry-After
     ├─ EngineFailed    500
     └─ Unavailable     503  with Retry-After: loading, draining

Raised anywhere under a request; turned into a response by the app, or into an event where a stream
has begun.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

MAX_RETRY_AFTER_SECONDS = 120


class ApiError(Exception):
    """An answer other than the one asked for."""

    status = 500
    type = "server_error"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        """message: one sentence for the client; param: the field at fault; code: OpenAI's word."""
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_seconds = retry_after_seconds

    def to_body(self) -> dict[str, Any]:
        """The error as OpenAI spells it."""
        return build_error_body(self.message, self.type, self.param, self.code)

    def to_response(self) -> Response:
        """The error as a whole response."""
        headers = {}
        if self.retry_after_seconds is not None:
            seconds = min(max(1, self.retry_after_seconds), MAX_RETRY_AFTER_SECONDS)
            headers["Retry-After"] = str(seconds)
        return build_json_response(self.to_body(), self.status, headers)


class BadRequest(ApiError):
    """The request cannot be served as it is."""

    status = 400
    type = "invalid_request_error"


class ModelNotFound(ApiError):
    """Another model's name was asked for."""

    status = 404
    type = "invalid_request_error"


class RequestTimedOut(ApiError):
    """The request took longer than it, or the server, allows."""

    status = 408
    type = "timeout_error"


class BodyTooLarge(ApiError):
    """The request is longer than any prompt could be."""

    status = 413
    type = "invalid_request_error"


class WrongMediaType(ApiError):
    """The body says that it is something other than JSON."""

    status = 415
    type = "invalid_request_error"


class QueueFull(ApiError):
    """As many requests wait as the server was told to let wait."""

    status = 429
    type = "rate_limit_error"


class EngineFailed(ApiError):
    """The engine broke while it made this answer."""


class Unavailable(ApiError):
    """Not now: the server loads, drains or has failed."""

    status = 503
    type = "service_unavailable_error"


def build_error_body(
    message: str, type_: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """OpenAI's error object."""
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}


def build_json_response(
    body: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """A JSON response; ASCII only, so that no text a client sent can make it unencodable."""
    content = json.dumps(body, separators=(",", ":"))
    return Response(content, status, headers, media_type="application/json")
