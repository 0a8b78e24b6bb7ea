"""What completions, chats and /generate have in common: how tokens are chosen and told.

Absent and null are the same. Defaults are OpenAI's where it has the field, else vLLM's.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from forebay_runtime.server.api.bodies.body import Body, FieldError
from forebay_runtime.server.api.bodies.fields import (
    MAX_COUNT,
    MAX_ID_CHARS,
    MAX_N,
    MAX_SECONDS,
    BadWords,
    LogitBias,
    Salt,
    Stops,
    TokenIds,
)


class StreamOptions(Body):
    """What a stream carries besides text."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class StructuredOutputs(Body):
    """What an answer must look like: exactly one of the fields, and none that nobody knows."""

    model_config = ConfigDict(extra="forbid")

    json_: dict[str, Any] | str | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = Field(None, min_length=1)
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None

    @model_validator(mode="after")
    def _check_one(self) -> StructuredOutputs:
        given = [self.json_, self.regex, self.choice, self.grammar, self.json_object or None]
        if sum(value is not None for value in given) != 1:
            raise FieldError(
                "structured_outputs must have exactly one of json, regex, choice, grammar and "
                "json_object (true)",
                "structured_outputs",
            )
        return self


class JsonSchemaFormat(Body):
    """A JSON schema and its name."""

    name: str = Field(min_length=1)
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    """OpenAI's way to ask for JSON."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None

    @model_validator(mode="after")
    def _check_schema(self) -> ResponseFormat:
        if self.type == "json_schema" and self.json_schema is None:
            raise FieldError(
                "response_format of type 'json_schema' needs response_format.json_schema",
                "response_format.json_schema",
            )
        return self


class PromptBody(Body):
    """How a prompt is read, whatever is done with it."""

    model: str | None = None
    truncate_prompt_tokens: int | None = Field(None, ge=-1, le=MAX_COUNT)
    truncation_side: Literal["left", "right"] = "left"
    priority: int = Field(0, ge=-(2**31), le=2**31 - 1)
    cache_salt: Salt = ""
    request_id: str | None = Field(None, min_length=1, max_length=MAX_ID_CHARS)
    timeout: float | None = Field(None, gt=0, le=MAX_SECONDS)
    user: str | None = None
    """Whom the client asks for; makes no difference here."""


class SamplingBody(PromptBody):
    """How the answer's tokens are chosen, and when it ends."""

    n: int = Field(1, ge=1, le=MAX_N)
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=-1, le=MAX_COUNT)
    min_p: float = Field(0.0, ge=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    repetition_penalty: float = Field(1.0, ge=1e-6, le=1e6)
    logit_bias: LogitBias = Field(default_factory=dict)
    allowed_token_ids: Annotated[TokenIds, Field(min_length=1)] | None = None
    bad_words: BadWords = Field(default_factory=list)
    stop: Stops = Field(default_factory=list)
    stop_token_ids: TokenIds = Field(default_factory=list)
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    max_tokens: int | None = Field(None, ge=0, le=MAX_COUNT)
    min_tokens: int = Field(0, ge=0, le=MAX_COUNT)
    skip_special_tokens: bool = True
    stream: bool = False
    structured_outputs: StructuredOutputs | None = None


class GenerationBody(SamplingBody):
    """What OpenAI's two endpoints add to it."""

    stream_options: StreamOptions | None = None
    stream_interval: int = Field(1, ge=1, le=MAX_COUNT)
    prompt_logprobs: int | None = Field(None, ge=-1, le=MAX_COUNT)
    response_format: ResponseFormat | None = None
    echo: bool = False
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False

    @property
    def includes_usage(self) -> bool:
        """Does the stream end with a chunk that counts tokens?"""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def counts_always(self) -> bool:
        """Does every chunk of the stream count tokens?"""
        options = self.stream_options
        return options is not None and options.include_usage and options.continuous_usage_stats

    @model_validator(mode="after")
    def _check_stream(self) -> GenerationBody:
        if self.stream_options is not None and self.stream_options.model_fields_set:
            if not self.stream:
                raise FieldError(
                    "stream_options is only allowed where stream is true", "stream_options"
                )
        if self.stream and self.prompt_logprobs:
            raise FieldError(
                f"prompt_logprobs is {self.prompt_logprobs}: it is not available where stream is "
                "true",
                "prompt_logprobs",
            )
        return self
