"""What an endpoint works with: the service, and the parts of its model that text needs.

Made once an application, before the model is loaded; its parts are there once it is.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.metadata
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from starlette.requests import Request

from forebay_runtime.chat_template import ChatTemplate
from forebay_runtime.parsing import (
    ReasoningTokens,
    choose_reasoning_parser,
    choose_tool_parser,
    read_reasoning_tokens,
)
from forebay_runtime.quoting import show
from forebay_runtime.server.api.bodies.body import Body, BodyT, list_fields, parse_body
from forebay_runtime.server.api.bodies.generation import PromptBody
from forebay_runtime.server.api.bodies.json_size import SMALL_BYTES
from forebay_runtime.server.api.ignored import list_ignored, note_ignored
from forebay_runtime.server.api.limits import Limits
from forebay_runtime.server.api.request_ids import read_request_id
from forebay_runtime.server.errors import WrongMediaType
from forebay_runtime.server.options import ServeOptions
from forebay_runtime.server.service import Service
from forebay_runtime.text.tokenizer import Tokenizer

T = TypeVar("T")

FINGERPRINT = {"system_fingerprint": "forebay-" + importlib.metadata.version("forebay")}
"""What made an answer's text, in every object of it."""


@dataclass(frozen=True)
class Head:
    """The three fields that all objects of one answer share."""

    id: str
    created: int
    model: str


class Context:
    """One server, as its endpoints see it."""

    def __init__(self, service: Service) -> None:
        """service need not be loaded yet."""
        self.service = service
        self._reasoning_tokens: ReasoningTokens | None = None

    @property
    def options(self) -> ServeOptions:
        """The server's flags."""
        return self.service.options

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.service.model.tokenizer

    @property
    def template(self) -> ChatTemplate:
        """The model's chat template."""
        return self.service.model.template

    @property
    def limits(self) -> Limits:
        """What a prompt must keep to."""
        engine = self.service.model.engine
        return Limits(engine.max_model_len, engine.vocab_size, engine.embedding_size)

    @cached_property
    def tool_parser(self) -> str | None:
        """How the model writes tool calls, None where it does not."""
        return choose_tool_parser(self.template.source, self.options.tool_call_parser)

    @cached_property
    def reasoning_parser(self) -> str | None:
        """How the model writes its thoughts, None where it does not."""
        return choose_reasoning_parser(self.template.source, self.options.reasoning_parser)

    async def reasoning_tokens(self) -> ReasoningTokens:
        """The model's tokens, as far as reasoning goes; looked through once, on a thread."""
        if self._reasoning_tokens is None:
            look = functools.partial(self.tokenizer.token_bytes, keeps_special=True)
            self._reasoning_tokens = await asyncio.to_thread(
                read_reasoning_tokens,
                lambda token_id: look(token_id).decode(errors="replace"),
                self.limits.vocab_size,
                self.service.end_ids,
            )
        return self._reasoning_tokens

    async def read(self, model: type[BodyT], request: Request) -> BodyT:
        """Read a request's body, and check that it asks for this server's model.

        Raises: ApiError.
        """
        body = await _read(request, functools.partial(parse_body, model))
        note_ignored(request, list_ignored(body, self.template.source or ""))
        self.service.check_model_name(_model_of(body))
        return body

    async def list_fields(self, request: Request) -> Collection[str]:
        """The names of the fields of a request's body.

        Raises: ApiError.
        """
        return await _read(request, list_fields)

    def head(self, prefix: str, body: PromptBody, request: Request) -> Head:
        """The head of an answer: under the id that the client asked for, or one of its own."""
        id_ = body.request_id or read_request_id(request)
        return Head(prefix + id_, int(time.time()), self.options.served_model_name)


async def _read(request: Request, parse: Callable[[bytes], T]) -> T:
    """Parse a body of JSON; a long one on a thread, as it would hold up others."""
    _check_media_type(request)
    content = await request.body()
    if len(content) > SMALL_BYTES:
        return await asyncio.to_thread(parse, content)
    return parse(content)


def _model_of(body: Body) -> str | None:
    name = getattr(body, "model", None)
    return name if isinstance(name, str) and name else None


def _check_media_type(request: Request) -> None:
    given = request.headers.get("content-type", "application/json")
    media_type = given.partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise WrongMediaType(
            f"The header Content-Type is {show(given)}; it must be application/json"
        )
