"""POST /tokenize and /detokenize."""

from __future__ import annotations

from pydantic import Field, model_validator

from forebay_runtime.server.api.bodies.body import Body, FieldError
from forebay_runtime.server.api.bodies.chat import Message, MessagesBody
from forebay_runtime.server.api.bodies.fields import TokenIds


class TokenizeBody(MessagesBody):
    """Either a prompt or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] = Field(default_factory=list)
    add_special_tokens: bool | None = None  # type: ignore[assignment]
    """Absent: for a prompt yes, for messages no, as templates write them out."""
    return_token_strs: bool = False

    @model_validator(mode="after")
    def _check_either(self) -> TokenizeBody:
        if (self.prompt is None) != bool(self.messages):
            raise FieldError("Give either prompt or messages, and not empty", "prompt")
        return self


class DetokenizeBody(Body):
    """Token ids to be turned into text."""

    model: str | None = None
    tokens: TokenIds
