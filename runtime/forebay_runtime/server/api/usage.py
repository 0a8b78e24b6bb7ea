"""What an answer cost, in tokens, as OpenAI counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from forebay_runtime.server.generation import Generation


@dataclass(frozen=True)
class Usage:
    """Token counts; num_cached is the part of the prompt that the prefix cache spared.

    num_reasoning is the part of the answers that are thoughts, None where models have none.
    """

    num_prompt: int
    num_new: int
    num_cached: int | None = None
    num_reasoning: int | None = None

    def to_body(self) -> dict[str, Any]:
        """The counts as OpenAI spells them."""
        body: dict[str, Any] = {
            "prompt_tokens": self.num_prompt,
            "completion_tokens": self.num_new,
            "total_tokens": self.num_prompt + self.num_new,
        }
        if self.num_cached is not None:
            body["prompt_tokens_details"] = {"cached_tokens": self.num_cached}
        if self.num_reasoning is not None:
            body["completion_tokens_details"] = {"reasoning_tokens": self.num_reasoning}
        return body


def count_usage(generations: Sequence[Generation], n: int) -> Usage:
    """Count the tokens of several answers; each n in a row share a prompt, which counts once."""
    prompts = generations[::n]
    return Usage(
        sum(len(generation.prompt_token_ids) for generation in prompts),
        sum(generation.num_tokens for generation in generations),
        sum(generation.num_cached_tokens for generation in prompts),
    )
