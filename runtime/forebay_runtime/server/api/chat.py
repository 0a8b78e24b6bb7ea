"""POST /v1/chat/completions: answer a conversation."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from forebay_runtime.server.api.answer import StreamForm, send_stream, send_whole
from forebay_runtime.server.api.bodies.chat import ChatBody
from forebay_runtime.server.api.chat_wording import ChatPlan, ChatWording
from forebay_runtime.server.api.context import Context
from forebay_runtime.server.api.limits import TokenLimit
from forebay_runtime.server.api.reading import Reading, read_tools
from forebay_runtime.server.api.rendering import render_chat
from forebay_runtime.server.api.sampling import (
    Ask,
    Scores,
    build_requests,
    build_telling,
    check_num_logprobs,
)
from forebay_runtime.server.api.structure import choose_chat_form, compile_chat_form


async def create_chat_completion(context: Context, request: Request) -> Response:
    """Answer a conversation."""
    body = await context.read(ChatBody, request)
    context.service.check_queue(body.n)
    tools = read_tools(body.tools, body.tool_choice)
    scores = _choose_scores(context, body)
    prompt = await render_chat(context, body, body, tools)
    reading = Reading.of(context, tools, prompt)
    form = choose_chat_form(body, tools, reading.tool_parser)
    constrain = await compile_chat_form(context, form, reading.prompt_tail)
    ask = Ask(_limit(body), "messages", scores, constrain)
    requests = await build_requests(context, body, [prompt], ask)
    plan = ChatPlan(body, prompt, reading, scores)
    wording = ChatWording(context.tokenizer, plan, context.head("chatcmpl-", body, request))
    telling = build_telling(context, body, body.stream_interval, reading.markers)
    generations = context.service.submit(requests, telling, body.n, body.timeout)
    if not body.stream:
        return await send_whole(generations, wording, body.n, request.receive)
    stream = StreamForm(context.service.manners, body.includes_usage, body.counts_always)
    return await send_stream(generations, wording, body.n, stream, request.receive)


def _limit(body: ChatBody) -> TokenLimit:
    """How long an answer may get: the newer field wins where both are given."""
    if body.max_completion_tokens is not None:
        return TokenLimit(body.max_completion_tokens, "max_completion_tokens", None)
    return TokenLimit(body.max_tokens, "max_tokens", None)


def _choose_scores(context: Context, body: ChatBody) -> Scores:
    num_top = check_num_logprobs(context, body.top_logprobs, "top_logprobs")
    asked = None if body.stream else body.prompt_logprobs
    num_prompt_logprobs = check_num_logprobs(context, asked, "prompt_logprobs")
    return Scores(num_top if body.logprobs else None, num_prompt_logprobs)
