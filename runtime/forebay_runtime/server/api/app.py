"""The application: every endpoint of the API by its path, and the errors that none of them saw."""

from __future__ import annotations

import functools

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from forebay_runtime.server.api import answers
from forebay_runtime.server.api.bodies.chat import ChatBody
from forebay_runtime.server.api.bodies.completions import CompletionBody, GenerateBody
from forebay_runtime.server.api.bodies.embeddings import EmbeddingBody
from forebay_runtime.server.api.bodies.tokens import DetokenizeBody, TokenizeBody
from forebay_runtime.server.api.chat import create_chat_completion
from forebay_runtime.server.api.completions import create_completion
from forebay_runtime.server.api.context import Context
from forebay_runtime.server.api.description import describe
from forebay_runtime.server.api.embeddings import create_embeddings
from forebay_runtime.server.api.endpoint import Endpoint
from forebay_runtime.server.api.generate import generate
from forebay_runtime.server.api.ignored import IgnoredFieldsHeader
from forebay_runtime.server.api.invocations import invoke
from forebay_runtime.server.api.models import get_model, list_models
from forebay_runtime.server.api.probes import health, load, metrics, ping, ready, version
from forebay_runtime.server.api.request_ids import RequestIdHeader
from forebay_runtime.server.api.tokenization import detokenize, tokenize, tokenizer_info
from forebay_runtime.server.errors import (
    ApiError,
    EngineFailed,
    build_error_body,
    build_json_response,
)
from forebay_runtime.server.service import Service

_REFUSED = (400, 404, 413, 415, 503)
_UNANSWERED = (*_REFUSED, 408, 429, 500)

ENDPOINTS = (
    Endpoint(
        "/v1/completions",
        create_completion,
        answers.Completion,
        CompletionBody,
        streams=True,
        errors=_UNANSWERED,
    ),
    Endpoint(
        "/v1/chat/completions",
        create_chat_completion,
        answers.ChatCompletion,
        ChatBody,
        streams=True,
        errors=_UNANSWERED,
    ),
    Endpoint(
        "/v1/embeddings", create_embeddings, answers.Embeddings, EmbeddingBody, errors=_UNANSWERED
    ),
    Endpoint(
        "/invocations",
        invoke,
        answers.ChatCompletion | answers.Completion | answers.Embeddings,
        ChatBody | CompletionBody | EmbeddingBody,
        streams=True,
        errors=_UNANSWERED,
    ),
    Endpoint("/generate", generate, answers.Texts, GenerateBody, streams=True, errors=_UNANSWERED),
    Endpoint("/tokenize", tokenize, answers.Tokens, TokenizeBody, errors=_REFUSED),
    Endpoint("/detokenize", detokenize, answers.PromptText, DetokenizeBody, errors=_REFUSED),
    Endpoint("/tokenizer_info", tokenizer_info, answers.TokenizerInfo, errors=(503,)),
    Endpoint("/v1/models", list_models, answers.ModelList, errors=(503,)),
    Endpoint("/v1/models/{name:path}", get_model, answers.ModelCard, errors=(404, 503)),
    Endpoint("/health", health, answers.Health, errors=(503,)),
    Endpoint("/ping", ping, answers.Health, also_posts=True, errors=(503,)),
    Endpoint("/ready", ready, answers.Readiness, errors=(503,)),
    Endpoint("/load", load, answers.LoadNumbers),
    Endpoint("/metrics", metrics),
    Endpoint("/version", version, answers.Version),
)


def build_app(service: Service) -> FastAPI:
    """Build the application around a service."""
    # No pages: they would load scripts from elsewhere, and the API is OpenAI's.
    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[Middleware(RequestIdHeader), Middleware(IgnoredFieldsHeader)],
        exception_handlers={
            ApiError: _on_api_error,
            HTTPException: _on_http_error,
            Exception: _on_crash,
        },
    )
    context = Context(service)
    for endpoint in ENDPOINTS:
        _add_route(app, context, endpoint)
    # Bodies are parsed by the endpoints, whose errors are OpenAI's, so FastAPI cannot see them.
    app.openapi = functools.cache(lambda: describe(ENDPOINTS))  # type: ignore[method-assign]
    return app


def _add_route(app: FastAPI, context: Context, endpoint: Endpoint) -> None:
    async def handle(request: Request) -> Response:
        return await endpoint.handler(context, request)

    app.add_route(endpoint.path, handle, methods=list(endpoint.methods))


async def _on_api_error(request: Request, exc: Exception) -> Response:
    if not isinstance(exc, ApiError):
        raise exc
    return exc.to_response()


async def _on_http_error(request: Request, exc: Exception) -> Response:
    if not isinstance(exc, HTTPException):
        raise exc
    message = {
        404: f"There is nothing at {request.method} {request.url.path[:128]}",
        405: f"{request.url.path[:128]} does not take {request.method}",
    }.get(exc.status_code, str(exc.detail))
    body = build_error_body(message, "invalid_request_error")
    return build_json_response(body, exc.status_code, dict(exc.headers or {}))


async def _on_crash(request: Request, exc: Exception) -> Response:
    return EngineFailed("The server failed to answer this request").to_response()
