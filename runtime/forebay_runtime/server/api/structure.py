"""From what a body says of its answer's form to a structure that holds the answer to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from forebay_runtime.parsing import Tools, build_tool_grammar, delay_past_reasoning
from forebay_runtime.request import Constraint
from forebay_runtime.server.api.bodies.chat import ChatBody
from forebay_runtime.server.api.bodies.generation import (
    GenerationBody,
    ResponseFormat,
    SamplingBody,
    StructuredOutputs,
)
from forebay_runtime.server.api.context import Context
from forebay_runtime.server.errors import BadRequest
from forebay_runtime.structured import StructureError, StructureSpec


@dataclass(frozen=True)
class Form:
    """A form that was asked for, and the field that asked."""

    spec: StructureSpec
    param: str


def choose_form(body: SamplingBody) -> Form | None:
    """The form that response_format or structured_outputs asks for.

    Raises: BadRequest if both do.
    """
    asked = None
    if isinstance(body, GenerationBody) and body.response_format is not None:
        asked = _of_response_format(body.response_format)
    if body.structured_outputs is None:
        return asked
    if asked is not None:
        raise BadRequest(
            "response_format and structured_outputs cannot both be given", param="response_format"
        )
    return Form(_of_structured_outputs(body.structured_outputs), "structured_outputs")


def choose_chat_form(body: ChatBody, tools: Tools, tool_parser: str | None) -> Form | None:
    """The same of a chat, where a call that must be made comes first.

    Raises: BadRequest.
    """
    calls = build_tool_grammar(tools.functions, tools.choice, tool_parser, body.parallel_tool_calls)
    return choose_form(body) if calls is None else Form(calls, "tools")


async def compile_form(context: Context, form: Form | None) -> Callable[[], Constraint] | None:
    """Compile a form, which is bounded in time and memory, and cached; gives what starts a walk.

    Raises: BadRequest if it is none, or too much.
    """
    if form is None:
        return None
    try:
        compiled = await context.service.structures.compile(form.spec)
    except StructureError as exc:
        raise BadRequest(f"{form.param} cannot be had: {exc}", param=form.param) from None
    return compiled.start


async def compile_chat_form(
    context: Context, form: Form | None, prompt_tail: str
) -> Callable[[], Constraint] | None:
    """The same for a chat, whose thoughts have no form.

    Raises: BadRequest.
    """
    start = await compile_form(context, form)
    if start is None or context.reasoning_parser is None:
        return start
    tokens = await context.reasoning_tokens()
    return lambda: delay_past_reasoning(start(), context.reasoning_parser, prompt_tail, tokens)


def _of_response_format(asked: ResponseFormat) -> Form | None:
    if asked.type == "json_object":
        return Form(StructureSpec("json_object"), "response_format")
    if asked.json_schema is not None and asked.type == "json_schema":
        return Form(StructureSpec("json_schema", asked.json_schema.schema_), "response_format")
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
