"""From what a body says of its answer's form to a structure that holds the answer to it."""

from __future__ import annotations

from forebay_runtime.parsing import Tools
from forebay_runtime.server.api.bodies.chat import ChatBody
from forebay_runtime.server.api.bodies.generation import (
    GenerationBody,
    ResponseFormat,
    SamplingBody,
    StructuredOutputs,
)
from forebay_runtime.server.api.context import Context
from forebay_runtime.server.errors import BadRequest
from forebay_runtime.structured import Compiled as Structure
from forebay_runtime.structured import StructureError, StructureSpec

__all__ = ["Structure", "choose_chat_spec", "choose_spec", "compile_spec"]


def choose_spec(body: SamplingBody) -> StructureSpec | None:
    """The form that response_format or structured_outputs asks for.

    Raises: BadRequest if both do.
    """
    response_format = body.response_format if isinstance(body, GenerationBody) else None
    asked = None if response_format is None else _of_response_format(response_format)
    if body.structured_outputs is None:
        return asked
    if asked is not None:
        raise BadRequest(
            "response_format and structured_outputs cannot both be given", param="response_format"
        )
    return _of_structured_outputs(body.structured_outputs)


def choose_chat_spec(body: ChatBody, tools: Tools, tool_parser: str | None) -> StructureSpec | None:
    """The same of a chat, where tools that must be called come first.

    Raises: BadRequest.
    """
    return choose_spec(body)


async def compile_spec(context: Context, spec: StructureSpec | None) -> Structure | None:
    """Compile a form; bounded in time and memory, and cached.

    Raises: BadRequest if it is none, or too much.
    """
    if spec is None:
        return None
    try:
        return await context.structures.compile(spec)
    except StructureError as exc:
        raise BadRequest(str(exc), param="structured_outputs") from None


def _of_response_format(asked: ResponseFormat) -> StructureSpec | None:
    if asked.type == "json_object":
        return StructureSpec("json_object")
    if asked.json_schema is not None and asked.type == "json_schema":
        return StructureSpec("json_schema", asked.json_schema.schema_)
    return None


def _of_structured_outputs(asked: StructuredOutputs) -> StructureSpec:
    if asked.json_ is not None:
        return StructureSpec("json_schema", asked.json_)
    if asked.regex is not None:
        return StructureSpec("regex", asked.regex)
    if asked.choice is not None:
        return StructureSpec("choice", asked.choice)
    if asked.grammar is not None:
        return StructureSpec("grammar", asked.grammar)
    return StructureSpec("json_object")
