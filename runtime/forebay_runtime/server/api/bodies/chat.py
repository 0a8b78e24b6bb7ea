"""POST /v1/chat/completions, and what other endpoints share with it: messages."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from forebay_runtime.server.api.bodies.body import Body, FieldError
from forebay_runtime.server.api.bodies.fields import MAX_COUNT
from forebay_runtime.server.api.bodies.generation import GenerationBody


class Message(Body):
    """One turn of a chat; content is text, or a list of text parts."""

    role: str = Field(min_length=1)
    content: str | list[dict[str, Any]] | None = None


class MessagesBody(Body):
    """A chat, and how it is rendered into a prompt."""

    messages: list[Message] = Field(min_length=1)
    tools: list[dict[str, Any]] | None = Field(None, min_length=1)
    documents: list[dict[str, Any]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False

    @model_validator(mode="before")
    @classmethod
    def _choose_generation_prompt(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not data.get("continue_final_message"):
            return data
        if data.get("add_generation_prompt"):
            raise FieldError(
                "continue_final_message and add_generation_prompt cannot both be true",
                "continue_final_message",
            )
        return data | {"add_generation_prompt": False}


class ChatBody(GenerationBody, MessagesBody):
    """POST /v1/chat/completions."""

    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_COUNT)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=-1, le=MAX_COUNT)
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = (
        None
    )
    include_reasoning: bool = True
    return_prompt_text: bool = False

    @model_validator(mode="after")
    def _check_lengths(self) -> ChatBody:
        if self.max_tokens == 0:
            raise FieldError("max_tokens is 0: it should be at least 1", "max_tokens")
        if self.top_logprobs and not self.logprobs:
            raise FieldError(
                f"top_logprobs is {self.top_logprobs}: it is only allowed where logprobs is true",
                "top_logprobs",
            )
        return self
