"""POST /v1/completions and /generate."""

from __future__ import annotations

from pydantic import Field, model_validator

from forebay_runtime.server.api.bodies.body import FieldError
from forebay_runtime.server.api.bodies.fields import MAX_COUNT, Prompts
from forebay_runtime.server.api.bodies.generation import GenerationBody, SamplingBody

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for completions; a chat goes on until the model ends it."""


class CompletionBody(GenerationBody):
    """POST /v1/completions."""

    prompt: Prompts
    logprobs: int | None = Field(None, ge=-1, le=MAX_COUNT)
    add_special_tokens: bool = True

    @model_validator(mode="after")
    def _check_max_tokens(self) -> CompletionBody:
        if self.max_tokens == 0 and not self.echo:
            raise FieldError(
                "max_tokens is 0: it should be at least 1, or echo be true", "max_tokens"
            )
        return self


class GenerateBody(SamplingBody):
    """POST /generate: vLLM's bare endpoint, sampling parameters beside one prompt."""

    prompt: Prompts
    add_special_tokens: bool = True

    @model_validator(mode="after")
    def _check_max_tokens(self) -> GenerateBody:
        if self.max_tokens == 0:
            raise FieldError("max_tokens is 0: it should be at least 1", "max_tokens")
        return self
