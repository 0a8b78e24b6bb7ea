"""What the engine can hold, and the checks of prompts and answers against it.

What passes here cannot make a step fail.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from forebay_runtime.quoting import show
from forebay_runtime.server.errors import BadRequest


@dataclass(frozen=True)
class Limits:
    """What the engine can hold."""

    max_model_len: int
    vocab_size: int
    embedding_size: int


def check_prompt(token_ids: Sequence[int], limits: Limits, param: str, num_least: int) -> None:
    """Refuse prompts that are empty, no tokens of this model, or leave too little room.

    num_least: tokens that the answer needs room for, 1 or 0.
    Raises: BadRequest.
    """
    if not token_ids:
        raise BadRequest("The prompt is empty; give at least one token", param=param)
    if len(token_ids) + num_least > limits.max_model_len:
        no_room = " and leaves no room for an answer" if num_least else ""
        raise BadRequest(
            f"This model's maximum context length is {limits.max_model_len} tokens, but the prompt "
            f"has {len(token_ids)} tokens{no_room}; shorten the prompt",
            param=param,
            code="context_length_exceeded",
        )
    check_token_ids(token_ids, limits, param)


def check_token_ids(token_ids: Collection[int], limits: Limits, param: str) -> None:
    """Refuse ids that the model does not have.

    Raises: BadRequest.
    """
    # There may be millions: the smallest and the largest are found without a step for each.
    for token_id in (min(token_ids), max(token_ids)) if token_ids else ():
        if not 0 <= token_id < limits.vocab_size:
            raise BadRequest(
                f"{param} has the token id {show(token_id)}, which is outside the model's "
                f"vocabulary of {limits.vocab_size} tokens; possible are 0 to "
                f"{limits.vocab_size - 1}",
                param=param,
            )


@dataclass(frozen=True)
class TokenLimit:
    """How many tokens an answer may have: as asked by the field `param`, else `default`.

    default None is whatever room the prompt leaves.
    """

    asked: int | None
    param: str
    default: int | None

    @property
    def num_least(self) -> int:
        """Tokens that the prompt must leave room for."""
        return 0 if self.asked == 0 else 1

    def resolve(self, num_prompt_tokens: int, limits: Limits) -> int:
        """The number of tokens for one prompt.

        Raises: BadRequest if more was asked than there is room for.
        """
        room = limits.max_model_len - num_prompt_tokens
        if self.asked is None:
            return room if self.default is None else min(self.default, room)
        if self.asked > room:
            raise BadRequest(
                f"This model's maximum context length is {limits.max_model_len} tokens, but "
                f"{self.asked + num_prompt_tokens} were requested ({num_prompt_tokens} in the "
                f"prompt, {self.asked} for the answer); shorten the prompt or lower {self.param} "
                f"to {room}",
                param=self.param,
                code="context_length_exceeded",
            )
        return self.asked
