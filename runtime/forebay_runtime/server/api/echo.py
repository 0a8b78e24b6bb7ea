"""A prompt told as part of its answer: its text, and its tokens as if they had been answered."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from forebay_runtime.request import TokenLogprobs
from forebay_runtime.server.api.prompts import Prompt
from forebay_runtime.server.piece import Token
from forebay_runtime.text.tokenizer import Tokenizer


class Echo:
    """One prompt, ready to stand before its answers."""

    def __init__(self, prompt: Prompt, tokenizer: Tokenizer) -> None:
        """A prompt that was sent as token ids is told with its special tokens written out."""
        self._token_ids = prompt.token_ids
        self._tokenizer = tokenizer
        self.text = tokenizer.decode(prompt.token_ids) if prompt.text is None else prompt.text

    def tokens(self, scores: Sequence[TokenLogprobs | None]) -> tuple[Token, ...]:
        """The prompt's tokens and where in its text they begin; scores: one a token."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        ends, num_chars = [], 0
        for token_id in self._token_ids:
            data = self._tokenizer.token_bytes(token_id, keeps_special=True)
            num_chars += len(decoder.decode(data))
            ends.append(num_chars)
        # What tokenising put in front (a bos token, a space) is no part of the text.
        num_added = max(0, num_chars - len(self.text))
        starts = [max(0, end - num_added) for end in (0, *ends[:-1])]
        return tuple(map(Token, self._token_ids, starts, scores))
