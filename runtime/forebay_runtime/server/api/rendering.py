"""From a chat to a prompt: its messages rendered by the model's template, or by the client's."""

from __future__ import annotations

import asyncio
from typing import Any

from forebay_runtime.chat_template import ChatTemplateError
from forebay_runtime.parsing import Tools
from forebay_runtime.server.api.bodies.chat import ChatBody, MessagesBody
from forebay_runtime.server.api.bodies.generation import PromptBody
from forebay_runtime.server.api.context import Context
from forebay_runtime.server.api.messages import to_plain
from forebay_runtime.server.api.prompts import Prompt, read_prompt
from forebay_runtime.server.errors import BadRequest


async def render_chat(
    context: Context, body: MessagesBody, prompt_body: PromptBody, tools: Tools
) -> Prompt:
    """Render a chat and tokenise it; prompt_body says how much of it is kept.

    Raises: BadRequest.
    """
    text = await render_text(context, body, tools)
    prompt = await read_prompt(context, prompt_body, text, body.add_special_tokens)
    return Prompt(prompt.token_ids, text)


async def render_text(context: Context, body: MessagesBody, tools: Tools) -> str:
    """Render a chat, on a thread: a template is foreign code and may take long.

    Raises: BadRequest if a message has what a text model cannot read, the template refuses, or the
    client brought its own.
    """
    if body.chat_template is not None:
        raise BadRequest(
            "chat_template is not allowed: this server renders chats with its model's template "
            "alone; start it with --chat-template to use another",
            param="chat_template",
        )

    def render() -> str:
        return context.template.render(to_plain(body.messages), body.add_generation_prompt)

    try:
        return await asyncio.to_thread(render)
    except ChatTemplateError as exc:
        raise BadRequest(str(exc), param="messages") from exc


def template_arguments(body: MessagesBody, tools: Tools) -> dict[str, Any]:
    """What a template may know beside the messages."""
    arguments: dict[str, Any] = {"documents": body.documents}
    if isinstance(body, ChatBody) and body.reasoning_effort is not None:
        arguments["reasoning_effort"] = body.reasoning_effort
        arguments["enable_thinking"] = body.reasoning_effort != "none"
    return arguments | body.chat_template_kwargs
