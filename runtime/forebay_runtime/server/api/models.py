"""GET /v1/models: the one model that there is."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from forebay_runtime.server.api.context import Context
from forebay_runtime.server.errors import build_json_response


async def list_models(context: Context, request: Request) -> Response:
    """The one model there is."""
    return build_json_response({"object": "list", "data": [_describe(context)]})


async def get_model(context: Context, request: Request) -> Response:
    """The model by its name."""
    context.service.check_model_name(request.path_params["name"])
    return build_json_response(_describe(context))


def _describe(context: Context) -> dict[str, Any]:
    name = context.options.served_model_name
    return {
        "id": name,
        "object": "model",
        "created": context.service.created,
        "owned_by": "forebay",
        "root": name,
        "parent": None,
        "max_model_len": context.limits.max_model_len,
    }
