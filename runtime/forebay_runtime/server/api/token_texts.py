"""How tokens and their logprobs are told: as text, as bytes, or as "token_id:N"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from forebay_runtime.request import TokenLogprobs
from forebay_runtime.server.piece import Token
from forebay_runtime.text.tokenizer import Tokenizer

LEAST_LOGPROB = -9999.0
"""JSON has no minus infinity; this is what OpenAI and vLLM say instead."""


class TokenTexts:
    """Spells the tokens of one answer."""

    def __init__(self, tokenizer: Tokenizer, as_ids: bool = False) -> None:
        """as_ids: every token is told as "token_id:N" in place of its text."""
        self._tokenizer = tokenizer
        self._as_ids = as_ids

    def text(self, token_id: int) -> str:
        """A token's text; one that is no whole characters is told by its bytes, as OpenAI does."""
        if self._as_ids:
            return f"token_id:{token_id}"
        data = self._tokenizer.token_bytes(token_id, keeps_special=True)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def completion_logprobs(self, tokens: Sequence[Token], num_top: int) -> dict[str, Any]:
        """The lists that completions have; offsets are the tokens' own."""
        return {
            "tokens": [self.text(token.token_id) for token in tokens],
            "token_logprobs": [_logprob(token.score) for token in tokens],
            "top_logprobs": [self._top_by_text(token.score, num_top) for token in tokens],
            "text_offset": [token.offset for token in tokens],
        }

    def chat_logprobs(self, tokens: Iterable[Token], num_top: int) -> dict[str, Any]:
        """The objects that chats have."""
        content = []
        for token in tokens:
            top = token.score.top[:num_top] if token.score is not None else ()
            logprob = _logprob(token.score)
            entry = self._entry(token.token_id, LEAST_LOGPROB if logprob is None else logprob)
            content.append(entry | {"top_logprobs": [self._entry(*each) for each in top]})
        return {"content": content, "refusal": None}

    def prompt_logprobs(
        self, scores: Iterable[TokenLogprobs | None], num_top: int
    ) -> list[dict[str, Any] | None]:
        """vLLM's objects of a prompt's tokens, by token id; None where nothing came before."""
        return [None if score is None else self._by_id(score, num_top) for score in scores]

    def _top_by_text(self, score: TokenLogprobs | None, num_top: int) -> dict[str, float] | None:
        """The best tokens, and the one that came though it was none of them."""
        if score is None:
            return None
        top: dict[str, float] = {}
        for token_id, logprob in ((score.token_id, score.logprob), *score.top[:num_top]):
            top.setdefault(self.text(token_id), max(logprob, LEAST_LOGPROB))
        return top

    def _entry(self, token_id: int, logprob: float) -> dict[str, Any]:
        data = self._tokenizer.token_bytes(token_id, keeps_special=True)
        return {
            "token": self.text(token_id),
            "logprob": max(logprob, LEAST_LOGPROB),
            "bytes": list(data),
        }

    def _by_id(self, score: TokenLogprobs, num_top: int) -> dict[str, Any]:
        ranked = {score.token_id: (score.rank, score.logprob)}
        for index, (token_id, logprob) in enumerate(score.top[:num_top]):
            ranked.setdefault(token_id, (index + 1, logprob))
        return {
            str(token_id): {
                "logprob": max(logprob, LEAST_LOGPROB),
                "rank": rank,
                "decoded_token": self.text(token_id),
            }
            for token_id, (rank, logprob) in ranked.items()
        }


def _logprob(score: TokenLogprobs | None) -> float | None:
    return None if score is None else max(score.logprob, LEAST_LOGPROB)
