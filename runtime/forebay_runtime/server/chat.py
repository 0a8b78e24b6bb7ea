"""POST /v1/chat/completions: answer a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay_runtime.server.answer import Answer
from forebay_runtime.server.generation import Piece
from forebay_runtime.server.prompt import TokenLimit
from forebay_runtime.server.schemas import ChatBody


def chat_limit(body: ChatBody) -> TokenLimit:
    """How long an answer may get: the newer field wins where both are given."""
    if body.max_completion_tokens is not None:
        return TokenLimit(body.max_completion_tokens, "max_completion_tokens", None)
    return TokenLimit(body.max_tokens, "max_tokens", None)


class ChatWording:
    """How chats are spelled."""

    def __init__(self, id_: str, model: str, created: int) -> None:
        """The three fields that all objects of one answer share."""
        self._head = {"id": f"chatcmpl-{id_}", "created": created, "model": model}
        self._chunk = self._head | {"object": "chat.completion.chunk"}

    def opening(self, index: int) -> list[dict[str, Any]]:
        """Say who speaks."""
        return [self._delta(index, {"role": "assistant", "content": ""}, None)]

    def chunks(self, index: int, piece: Piece) -> list[dict[str, Any]]:
        """The text, then, in a chunk of its own, why it ended."""
        chunks = [self._delta(index, {"content": piece.text}, None)] if piece.text else []
        if piece.finish_reason is not None:
            chunks.append(self._delta(index, {}, piece.finish_reason))
        return chunks

    def usage(self, usage: dict[str, Any]) -> dict[str, Any]:
        """Token counts without a choice."""
        return self._chunk | {"choices": [], "usage": usage}

    def whole(self, answers: Sequence[Answer], usage: dict[str, Any]) -> dict[str, Any]:
        """The assistant's message."""
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": answer.text},
                "logprobs": None,
                "finish_reason": answer.finish_reason,
            }
            for index, answer in enumerate(answers)
        ]
        return self._head | {"object": "chat.completion", "choices": choices, "usage": usage}

    def _delta(self, index: int, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
        return self._chunk | {"choices": [choice]}
