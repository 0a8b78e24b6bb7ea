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

    template = context.template
    messages = to_plain(body.messages, "developer" in (template.source or ""))
    try:
        return await asyncio.to_thread(
            template.render,
            messages,
            body.add_generation_prompt,
            body.continue_final_message,
            [function.source for function in tools.functions],
            body.documents,
            _further_variables(body),
        )
    except ChatTemplateError as exc:
        named = str(exc).startswith("chat_template_kwargs")
        raise BadRequest(str(exc), param="chat_template_kwargs" if named else "messages") from exc


def _further_variables(body: MessagesBody) -> dict[str, Any]:
    """What a template may know beside the messages; what the client names itself comes first."""
    effort = body.reasoning_effort if isinstance(body, ChatBody) else None
    if effort is None:
        return body.chat_template_kwargs
    implied = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    return implied | body.chat_template_kwargs
