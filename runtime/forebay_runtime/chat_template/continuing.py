"""End a prompt within its last message, so that the model goes on with it.

A mark put behind the message's text shows, in the rendered prompt, where to cut.
"""

from __future__ import annotations

import secrets
from typing import Any

from forebay_runtime.chat_template.meter import ChatTemplateError


def mark_open(messages: list[dict[str, Any]]) -> str:
    """Put a mark behind the last message's text, in place, and return it.

    Raises: ChatTemplateError if there is no text to go on with.
    """
    content = messages[-1].get("content") if messages else None
    if not isinstance(content, str):
        raise ChatTemplateError("continue_final_message needs a last message that has text")
    mark = f"{secrets.token_hex(16)} "  # the space shows whether the template strips the text
    messages[-1]["content"] = content + mark
    return mark


def cut_open(prompt: str, mark: str) -> str:
    """The prompt up to the mark.

    Raises: ChatTemplateError if the template left the last message out.
    """
    place = prompt.rfind(mark.strip())
    if place < 0:
        raise ChatTemplateError(
            "The model's chat template leaves out the last message's text, so that "
            "continue_final_message is not possible"
        )
    is_verbatim = prompt.startswith(mark, place)
    return prompt[:place] if is_verbatim else prompt[:place].rstrip()
