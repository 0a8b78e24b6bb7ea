"""Run a server from its first byte to its exit code: bind, load, serve, drain, last words.

Called by the command line. The port is open before the model is loaded, so that probes and early
clients get an answer instead of a refused connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import uvicorn
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from forebay_runtime.server.api.app import build_app
from forebay_runtime.server.connection import Connection
from forebay_runtime.server.front import Front
from forebay_runtime.server.last_words import describe_cause, speak_last_words
from forebay_runtime.server.options import ServeOptions
from forebay_runtime.server.service import Listener, Model, Service

logger = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 620
"""Longer than clients and load balancers keep idle connections (Go's client 90 s, AWS's balancer
60 s, Google's 600 s): whoever writes next must also be the one who closes first, or a request can
meet a close halfway."""
_BACKLOG = 2048
_FLUSH_SECONDS = 2
_JOIN_SECONDS = 5.0


def run_server(options: ServeOptions, load: Callable[[Listener], Model]) -> int:
    """Serve until told to stop; returns the process's exit code."""
    try:
        listener = open_listener(options.host, options.port)
    except OSError as exc:
        cause = f"cannot listen on {options.host}:{options.port}: {exc.strerror or exc}"
        speak_last_words(cause, options.termination_log)
        return 1
    return asyncio.run(_serve(options, load, listener))


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: they close the listeners before anything is drained."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the lifecycle."""
        yield


async def _serve(
    options: ServeOptions, load: Callable[[Listener], Model], listener: socket.socket
) -> int:
    service = Service(options, load)
    server = HttpServer(_build_uvicorn_config(service))
    service.connections = server.server_state.connections  # type: ignore[assignment]
    service.lifecycle.handle_signals(service)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    logger.info("Opened host=%s port=%d", options.host, listener.getsockname()[1])
    service.loop.start()
    ends: set[asyncio.Future[Any]] = {serving, service.lifecycle.exit_code}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
    code = service.lifecycle.exit_code.result()
    server.should_exit = True
    await serving
    service.close()
    service.loop.stop(_JOIN_SECONDS if code == 0 and service.is_warm else 0.0)
    if not service.was_refused:
        logger.info("Stopped code=%d", code)
    if service.failure is not None:
        speak_last_words(describe_cause(service.failure), options.termination_log)
    elif service.lifecycle.num_cut:
        # The operator reads the number, and counts the drain as a forced one.
        speak_last_words(f"answers cut: {service.lifecycle.num_cut}", options.termination_log)
    return code


def _build_front(service: Service) -> ASGIApp:
    options = service.options
    front = Front(
        build_app(service), service.lifecycle, service.metrics.count_error, options.body_seconds
    )
    if not options.allowed_origins:
        return front
    # Around the front, or a page could not read what was refused there.
    return CORSMiddleware(
        front,
        allow_origins=options.allowed_origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=["*"],
    )


def _build_uvicorn_config(service: Service) -> uvicorn.Config:
    return uvicorn.Config(
        _build_front(service),
        http=functools.partial(  # type: ignore[arg-type]
            Connection, service.lifecycle, service.options.head_seconds
        ),
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_FLUSH_SECONDS,
    )


def open_listener(host: str, port: int) -> socket.socket:
    """Open the port.

    Raises: OSError.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only where the protocol is named does asyncio switch Nagle's algorithm off, which would hold
    # each small write back for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # A restarted container finds its predecessor's connections in TIME_WAIT.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def leave(code: int) -> NoReturn:
    """End the process now, whatever threads still do.

    A thread inside a native library cannot be ended, and Python's own farewell would wait for it
    or pull the floor from under it.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
