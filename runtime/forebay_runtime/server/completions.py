"""POST /v1/completions: continue one prompt, or several at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay_runtime.server.answer import Answer
from forebay_runtime.server.generation import Piece
from forebay_runtime.server.prompt import TokenLimit
from forebay_runtime.server.schemas import CompletionBody

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for completions; a chat goes on until the model ends it."""


def completion_limit(body: CompletionBody) -> TokenLimit:
    """How long a completion may get."""
    return TokenLimit(body.max_tokens, "max_tokens", DEFAULT_MAX_TOKENS)


class CompletionWording:
    """How completions are spelled."""

    def __init__(self, id_: str, model: str, created: int) -> None:
        """The three fields that all objects of one answer share."""
        self._head = {
            "id": f"cmpl-{id_}",
            "object": "text_completion",
            "created": created,
            "model": model,
        }

    def opening(self, index: int) -> list[dict[str, Any]]:
        """Nothing comes before the text."""
        return []

    def chunks(self, index: int, piece: Piece) -> list[dict[str, Any]]:
        """Text and, in the last chunk, why it ended."""
        return [self._head | {"choices": [_choice(index, piece.text, piece.finish_reason)]}]

    def usage(self, usage: dict[str, Any]) -> dict[str, Any]:
        """Token counts without a choice."""
        return self._head | {"choices": [], "usage": usage}

    def whole(self, answers: Sequence[Answer], usage: dict[str, Any]) -> dict[str, Any]:
        """One choice a prompt, in the prompts' order."""
        choices = [
            _choice(index, answer.text, answer.finish_reason)
            for index, answer in enumerate(answers)
        ]
        return self._head | {"choices": choices, "usage": usage}


def _choice(index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}
