"""The shapes of whole answers, for the API's description; a test holds answers to them."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict


class ErrorDetail(TypedDict):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(TypedDict):
    """Every answer of a status from 400 on, probes apart."""

    error: ErrorDetail


class CachedTokens(TypedDict):
    """How many of a prompt's tokens the prefix cache spared."""

    cached_tokens: int


class ReasoningTokens(TypedDict):
    """How many of an answer's tokens are thoughts."""

    reasoning_tokens: int


class UsageCounts(TypedDict):
    """What an answer cost; the last field is there where the model thinks."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: NotRequired[ReasoningTokens]


class CompletionLogprobs(TypedDict):
    """Lists of one entry a token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class PromptLogprob(TypedDict):
    """How likely one token was at one place of the prompt."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class CompletionChoice(TypedDict):
    """One answer."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"]
    stop_reason: str | int | None
    token_ids: list[int] | None
    prompt_token_ids: list[int] | None
    prompt_logprobs: PromptLogprobs | None


class Completion(TypedDict):
    """POST /v1/completions."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: UsageCounts
    service_tier: None
    system_fingerprint: str


class CalledFunction(TypedDict):
    """arguments is JSON in a string."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    """One call that the model asks for."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(TypedDict):
    """What the model says."""

    role: str
    content: str | None
    refusal: None
    reasoning: str | None
    reasoning_content: str | None
    tool_calls: NotRequired[list[ToolCall]]


class TopLogprob(TypedDict):
    """A token and how likely it was."""

    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(TopLogprob):
    """The token that came, and the best at its place."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(TypedDict):
    """One entry a token."""

    content: list[ChatLogprob]
    refusal: None


class ChatChoice(TypedDict):
    """One answer."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]
    stop_reason: str | int | None
    token_ids: list[int] | None


class ChatCompletion(TypedDict):
    """POST /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageCounts
    service_tier: None
    system_fingerprint: str
    prompt_token_ids: list[int] | None
    prompt_logprobs: PromptLogprobs | None
    prompt_text: NotRequired[str]


class Embedding(TypedDict):
    """A vector: numbers, or their float32 bytes in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingCounts(TypedDict):
    """What embeddings cost."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(TypedDict):
    """POST /v1/embeddings."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Embedding]
    usage: EmbeddingCounts


class Texts(TypedDict):
    """POST /generate."""

    text: list[str]


class Tokens(TypedDict):
    """POST /tokenize."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class TokenizerInfo(TypedDict):
    """GET /tokenizer_info."""

    bos_token: str | None
    eos_token: str | None
    chat_template: str | None


class PromptText(TypedDict):
    """POST /detokenize."""

    prompt: str


class ModelCard(TypedDict):
    """A model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: None
    max_model_len: int


class ModelList(TypedDict):
    """GET /v1/models."""

    object: Literal["list"]
    data: list[ModelCard]


class Health(TypedDict):
    """GET /health and /ping."""

    healthy: bool


class Readiness(TypedDict):
    """GET /ready."""

    phase: str


class MemoryBytes(TypedDict):
    """What the engine's memory was measured to be, of one GPU or of the process on a CPU."""

    weights: int
    kvCache: int
    activation: int
    overhead: int
    draftWeights: NotRequired[int]
    draftKvCache: NotRequired[int]
    """Of a draft model, where there is one."""


class LoadNumbers(TypedDict):
    """GET /load; device and memoryBytes are null before warm-up has ended."""

    running: int
    waiting: int
    kvCacheUsage: float
    freeKvTokens: int
    device: Literal["cuda", "cpu"] | None
    gpuUtilization: float | None
    """From 0 to 1, of the last moments; null on a CPU, and where the GPU does not tell."""
    memoryBytes: MemoryBytes | None


class Version(TypedDict):
    """GET /version."""

    version: str
    kernels: str | None
    """What computes steps: triton, torch, or the set of instructions of a CPU's own kernels; null
    before warm-up has ended."""
