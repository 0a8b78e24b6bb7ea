"""The routes: OpenAI's API, vLLM's two tokenizer endpoints, and the probes."""

from __future__ import annotations

import importlib.metadata
import time
import uuid
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from forebay_runtime.request import Request as EngineRequest
from forebay_runtime.server.answer import Wording, send_stream, send_whole
from forebay_runtime.server.chat import ChatWording, chat_limit
from forebay_runtime.server.completions import CompletionWording, completion_limit
from forebay_runtime.server.errors import (
    ApiError,
    BadRequest,
    EngineFailed,
    build_error_body,
    build_json_response,
)
from forebay_runtime.server.prompt import (
    TokenLimit,
    build_request,
    check_prompt,
    check_token_ids,
    encode,
    render_messages,
)
from forebay_runtime.server.schemas import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    GenerationBody,
    TokenizeBody,
    parse_body,
)
from forebay_runtime.server.service import Service

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def build_app(service: Service) -> FastAPI:
    """Build the application around a service."""
    # No pages: they would load scripts from elsewhere, and the API is OpenAI's.
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    _add_probes(app, service)
    _add_generation(app, service)
    _add_tokenizer(app, service)
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_crash)
    return app


def _add_probes(app: FastAPI, service: Service) -> None:
    @app.get("/health")
    async def health() -> Response:
        """Liveness."""
        is_healthy = service.is_healthy
        return build_json_response({"healthy": is_healthy}, 200 if is_healthy else 503)

    @app.get("/ready")
    async def ready() -> Response:
        """Readiness: 200 after warm-up and through the lame-duck seconds."""
        phase = service.lifecycle.phase.value
        return build_json_response({"phase": phase}, 200 if service.lifecycle.is_ready else 503)

    @app.get("/load")
    async def load() -> Response:
        """What the operator scales and drains by."""
        now = service.loop.load_now()
        body = {
            "running": now.num_running,
            "waiting": now.num_waiting,
            "kvCacheUsage": now.kv_cache_usage,
            "freeKvTokens": now.free_kv_tokens,
        }
        return build_json_response(body)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Prometheus's text format."""
        return Response(service.metrics.to_text(), headers={"Content-Type": _METRICS_TYPE})

    @app.get("/version")
    async def version() -> Response:
        """The installed release."""
        return build_json_response({"version": importlib.metadata.version("forebay")})


def _add_generation(app: FastAPI, service: Service) -> None:
    @app.get("/v1/models")
    async def list_models() -> Response:
        """The one model there is."""
        return build_json_response({"object": "list", "data": [_describe_model(service)]})

    @app.get("/v1/models/{name:path}")
    async def get_model(name: str) -> Response:
        """The model by its name."""
        service.check_model_name(name)
        return build_json_response(_describe_model(service))

    @app.post("/v1/completions")
    async def create_completion(request: Request) -> Response:
        """Continue prompts."""
        body = parse_body(CompletionBody, await request.body())
        service.check_model_name(body.model)
        tokenizer, limit = service.model.tokenizer, completion_limit(body)
        requests = []
        for prompt in body.prompt:
            ids = (
                prompt
                if isinstance(prompt, list)
                else await encode(tokenizer, prompt, service.limits)
            )
            requests.append(_build(service, body, ids, limit, "prompt"))
        wording = CompletionWording(*_head(service))
        return await _answer(service, body, requests, wording, request)

    @app.post("/v1/chat/completions")
    async def create_chat_completion(request: Request) -> Response:
        """Answer a conversation."""
        body = parse_body(ChatBody, await request.body())
        service.check_model_name(body.model)
        text = await render_messages(service.model.template, body.messages)
        ids = await encode(service.model.tokenizer, text, service.limits, False)
        requests = [_build(service, body, ids, chat_limit(body), "messages")]
        return await _answer(service, body, requests, ChatWording(*_head(service)), request)


def _add_tokenizer(app: FastAPI, service: Service) -> None:
    @app.post("/tokenize")
    async def tokenize(request: Request) -> Response:
        """The token ids of a prompt, or of a rendered chat."""
        body = parse_body(TokenizeBody, await request.body())
        service.check_model_name(body.model)
        tokenizer, adds_special = service.model.tokenizer, body.add_special_tokens
        if (body.prompt is None) == (body.messages is None):
            raise BadRequest("Give either prompt or messages", param="prompt")
        text = body.prompt
        if text is None:
            text = await render_messages(
                service.model.template, body.messages or [], body.add_generation_prompt
            )
            adds_special = False
        ids = await encode(tokenizer, text, service.limits, adds_special)
        texts = [tokenizer.token_text(id_) for id_ in ids] if body.return_token_strs else None
        return build_json_response(
            {
                "count": len(ids),
                "max_model_len": service.limits.max_model_len,
                "tokens": ids,
                "token_strs": texts,
            }
        )

    @app.post("/detokenize")
    async def detokenize(request: Request) -> Response:
        """The text of token ids, special tokens written out."""
        body = parse_body(DetokenizeBody, await request.body())
        service.check_model_name(body.model)
        check_token_ids(body.tokens, service.limits, "tokens")
        return build_json_response({"prompt": service.model.tokenizer.decode(body.tokens)})


def _build(
    service: Service, body: GenerationBody, ids: list[int], limit: TokenLimit, param: str
) -> EngineRequest:
    check_prompt(ids, service.limits, param)
    max_tokens = limit.resolve(len(ids), service.limits)
    return build_request(body, ids, max_tokens, service.end_ids)


async def _answer(
    service: Service,
    body: GenerationBody,
    requests: list[EngineRequest],
    wording: Wording,
    request: Request,
) -> Response:
    generations = service.submit(requests, tuple(body.stop))
    if body.stream:
        return await send_stream(
            generations, wording, body.includes_usage, service.manners, request.receive
        )
    return await send_whole(generations, wording, request.receive)


def _head(service: Service) -> tuple[str, str, int]:
    return uuid.uuid4().hex, service.options.served_model_name, int(time.time())


def _describe_model(service: Service) -> dict[str, Any]:
    return {
        "id": service.options.served_model_name,
        "object": "model",
        "created": service.created,
        "owned_by": "forebay",
        "max_model_len": service.limits.max_model_len,
    }


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
