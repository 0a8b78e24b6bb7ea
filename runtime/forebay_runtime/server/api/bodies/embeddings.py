"""POST /v1/embeddings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from forebay_runtime.server.api.bodies.fields import MAX_COUNT, Prompts
from forebay_runtime.server.api.bodies.generation import PromptBody


class EmbeddingBody(PromptBody):
    """Texts or token ids to be turned into vectors."""

    input: Prompts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1, le=MAX_COUNT)
    pooling: Literal["mean", "last"] = "mean"
    add_special_tokens: bool = True
    use_activation: Literal[True] = True
    embed_dtype: Literal["float32", "float"] = "float32"
    endianness: Literal["native", "little"] = "native"
