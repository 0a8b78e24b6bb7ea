"""Guesses that a text goes on as it did the last time: what followed its last tokens before.

A step costs a few dictionary look-ups however long the text is: where each n-gram was last seen is
kept from step to step. Imports no torch.
Source: Saxena 2023 (prompt lookup decoding).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from weakref import WeakKeyDictionary

from forebay_runtime.request import Request


class NgramProposer:
    """What followed the longest of a request's last n-grams that came before, n in a range."""

    def __init__(self, least: int, most: int) -> None:
        """least, most: tokens of the n-grams that are looked for."""
        self._sizes = tuple(range(most, least - 1, -1))
        self._texts: WeakKeyDictionary[Request, _Text] = WeakKeyDictionary()

    def num_ready(self, request: Request, most: int) -> int:
        """How many tokens, up to most, could be proposed now: none where nothing came before."""
        text = self._texts.get(request)
        if text is None:
            text = self._texts[request] = _Text(self._sizes, request.prompt_token_ids)
        text.take(request.output_token_ids)
        return 0 if text.find() is None else most

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[tuple[int, ...]]:
        """So many tokens for each request that num_ready was asked about."""
        return [self._texts[request].follow(number) for request, number in wanted]

    @property
    def round_seconds(self) -> float:
        """What one token more costs for all requests together: nothing that counts."""
        return 0.0


class _Text:
    """A request's tokens, and what followed each n-gram when it was last seen."""

    def __init__(self, sizes: tuple[int, ...], prompt_token_ids: Sequence[int]) -> None:
        self._sizes = sizes
        self._num_prompt_tokens = len(prompt_token_ids)
        self._token_ids: list[int] = []
        self._nexts: dict[int, dict[tuple[int, ...], int]] = {size: {} for size in sizes}
        self._extend(prompt_token_ids)

    def take(self, output_token_ids: Sequence[int]) -> None:
        """Take in what came since."""
        num_new = self._num_prompt_tokens + len(output_token_ids) - len(self._token_ids)
        if num_new:
            self._extend(output_token_ids[-num_new:])

    def _extend(self, token_ids: Sequence[int]) -> None:
        """Add tokens, and what precedes each of them as followed by it."""
        first = len(self._token_ids)
        self._token_ids += token_ids
        for size, nexts in self._nexts.items():
            begin = max(0, first - size)
            places = range(begin + size, len(self._token_ids))
            nexts.update(zip(_ngrams(self._token_ids[begin:-1], size), places, strict=True))

    def find(self) -> int | None:
        """Where what followed before begins, by the longest n-gram that was seen."""
        token_ids = self._token_ids
        for size in self._sizes:
            place = self._nexts[size].get(tuple(token_ids[-size:]))
            if place is not None:
                return place
        return None

    def follow(self, number: int) -> tuple[int, ...]:
        """What followed before; past the end it goes on with itself, as a period does."""
        place = self.find()
        if place is None:
            return ()
        found = self._token_ids[place : place + number]
        while len(found) < number:
            found += found[: number - len(found)]
        return tuple(found)


def _ngrams(token_ids: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """All n-grams of a text in order."""
    return zip(*(token_ids[start:] for start in range(size)), strict=False)
