"""POST /invocations: the one path that SageMaker knows, for whatever a body asks for."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from forebay_runtime.server.api.chat import create_chat_completion
from forebay_runtime.server.api.completions import create_completion
from forebay_runtime.server.api.context import Context
from forebay_runtime.server.api.embeddings import create_embeddings
from forebay_runtime.server.api.endpoint import Handler
from forebay_runtime.server.errors import BadRequest

_HANDLERS: dict[str, Handler] = {
    "messages": create_chat_completion,
    "prompt": create_completion,
    "input": create_embeddings,
}
"""Who answers a body with such a field; the first that it has counts."""


async def invoke(context: Context, request: Request) -> Response:
    """Answer a chat, a completion or embeddings."""
    names = await context.list_fields(request)
    for name, handler in _HANDLERS.items():
        if name in names:
            return await handler(context, request)
    raise BadRequest(
        "The request's body needs one of the fields messages (a chat), prompt (a completion) and "
        "input (embeddings)"
    )
