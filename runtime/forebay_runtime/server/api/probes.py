"""What the cluster asks: is it alive, is it ready, how busy is it, and which release is it."""

from __future__ import annotations

import importlib.metadata

from starlette.requests import Request
from starlette.responses import Response

from forebay_runtime.server.api.context import Context
from forebay_runtime.server.errors import build_json_response

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def health(context: Context, request: Request) -> Response:
    """Liveness."""
    is_healthy = context.service.is_healthy
    return build_json_response({"healthy": is_healthy}, 200 if is_healthy else 503)


async def ping(context: Context, request: Request) -> Response:
    """The same, under the name that some platforms ask for."""
    return await health(context, request)


async def ready(context: Context, request: Request) -> Response:
    """Readiness: 200 after warm-up and through the lame-duck seconds."""
    lifecycle = context.service.lifecycle
    status = 200 if lifecycle.is_ready else 503
    return build_json_response({"phase": lifecycle.phase.value}, status)


async def load(context: Context, request: Request) -> Response:
    """What the operator scales and drains by."""
    now = context.service.loop.load_now()
    body = {
        "running": now.num_running,
        "waiting": now.num_waiting,
        "kvCacheUsage": now.kv_cache_usage,
        "freeKvTokens": now.free_kv_tokens,
    }
    return build_json_response(body)


async def metrics(context: Context, request: Request) -> Response:
    """Prometheus's text format."""
    return Response(context.service.metrics.to_text(), headers={"Content-Type": _METRICS_TYPE})


async def version(context: Context, request: Request) -> Response:
    """The installed release."""
    return build_json_response({"version": importlib.metadata.version("forebay")})
