"""What the cluster asks: is it alive, is it ready, how busy is it, and which release is it."""

from __future__ import annotations

import importlib.metadata

from starlette.requests import Request
from starlette.responses import Response

from forebay_runtime.engine import EngineLike
from forebay_runtime.server.api.context import Context
from forebay_runtime.server.errors import build_json_response

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TERMS = {
    "weights": "weights",
    "kv_cache": "kvCache",
    "draft_weights": "draftWeights",
    "draft_kv_cache": "draftKvCache",
    "activation": "activation",
    "overhead": "overhead",
}
"""The engine's terms of memory, by their names in answers."""


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
    """What the operator scales and drains by, and what it compares with its plan."""
    service = context.service
    now, engine = service.loop.load_now(), service.warm_engine
    body = {
        "running": now.num_running,
        "waiting": now.num_waiting,
        "kvCacheUsage": now.kv_cache_usage,
        "freeKvTokens": now.free_kv_tokens,
        "device": engine.device if engine else None,
        "gpuUtilization": service.gpu_utilization(),
        "memoryBytes": _measured_bytes(engine) if engine else None,
    }
    return build_json_response(body)


def _measured_bytes(engine: EngineLike) -> dict[str, int]:
    return {_TERMS[term.name]: term.measured_bytes for term in engine.vram_terms}


async def metrics(context: Context, request: Request) -> Response:
    """Prometheus's text format."""
    return Response(context.service.metrics.to_text(), headers={"Content-Type": _METRICS_TYPE})


async def version(context: Context, request: Request) -> Response:
    """The installed release, and what computes."""
    engine = context.service.warm_engine
    body = {
        "version": importlib.metadata.version("forebay"),
        "kernels": engine.kernels if engine else None,
    }
    return build_json_response(body)
