"""Tokens of rows of scores by native kernels: the best, or one by chance.

What forebay_runtime.sampling.draw does by torch's operators, in a hundredth of their calls; from
the same chance it draws the same tokens.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay_kernels.cpu.library import native_library
from forebay_kernels.cpu.score_rows import ScoreRows
from forebay_kernels.cpu.thread_pool import ThreadPool

_DRAW = struct.Struct("=qdffii")
_MOST_TOP_K = 2**31 - 1
_SHARED_ROWS = 16
"""For fewer rows of which the best is sought, no thread is woken."""


class Draw(NamedTuple):
    """One token to be drawn from a row of scores whose best is finite.

    key: 63 bits of chance. temperature: above 0. top_k 0, top_p 1 and min_p 0 leave all tokens in.
    """

    row: int
    key: int
    temperature: float
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


class Ranked(NamedTuple):
    """R rows' tokens: own [R] logprobs, ranks [R]; top_tokens, top [R, k], falling."""

    own: NDArray[np.float32]
    ranks: NDArray[np.int64]
    top_tokens: NDArray[np.int64]
    top: NDArray[np.float32]


class _Found:
    """Tokens and best scores of rows, and where they lie: to ask numpy for that is slow."""

    def __init__(self, num_rows: int) -> None:
        self.tokens = np.zeros(num_rows, np.int64)
        self.best = np.zeros(num_rows, np.float32)
        self.at, self.best_at = self.tokens.ctypes.data, self.best.ctypes.data


class NativeSampling:
    """The kernels, and the threads that share the rows of one call."""

    def __init__(self, pool: ThreadPool | None = None) -> None:
        """pool: None computes on the thread that calls.

        Raises: RuntimeError if there is no native library.
        """
        library = native_library()
        self._pool = pool
        """Held, as the kernels know it by its handle."""
        self._room = _Found(1)
        self._handle = None if pool is None else pool.handle
        pointer, number = ctypes.c_void_p, ctypes.c_int
        self._find_best, self._draw, self._rank = (
            library.fb_find_best,
            library.fb_draw,
            library.fb_rank,
        )
        self._find_best.argtypes = (pointer, pointer, number, number, pointer, pointer)
        self._draw.argtypes = (pointer, pointer, number, ctypes.c_char_p, number, pointer)
        self._rank.argtypes = (
            *(pointer, pointer, number, number, pointer, number),
            *(pointer, pointer, pointer, pointer),
        )
        self._find_best.restype = self._draw.restype = self._rank.restype = None

    def find_best(self, scores: ScoreRows) -> tuple[list[int], list[float]]:
        """Each row's best token, the first of equals, and its score: NaN where any of it is."""
        _, address, num_rows, num_tokens = scores
        found = self._found(num_rows)
        pool = self._handle if num_rows >= _SHARED_ROWS else None
        self._find_best(pool, address, num_rows, num_tokens, found.best_at, found.at)
        return found.tokens[:num_rows].tolist(), found.best[:num_rows].tolist()

    def draw(self, scores: ScoreRows, draws: Sequence[Draw]) -> list[int]:
        """A token for each draw."""
        _, address, num_rows, num_tokens = scores
        if not all([0 <= each.row < num_rows for each in draws]):
            raise ValueError(f"a token is to be drawn outside of {num_rows} rows")
        found = self._found(len(draws))
        packed = b"".join([_pack(each) for each in draws])
        self._draw(self._handle, address, num_tokens, packed, len(draws), found.at)
        tokens: list[int] = found.tokens[: len(draws)].tolist()
        return tokens

    def _found(self, num_rows: int) -> _Found:
        """Room for what is found of so many rows, kept from call to call."""
        if num_rows > len(self._room.tokens):
            self._room = _Found(num_rows)
        return self._room

    def rank(self, scores: ScoreRows, tokens: NDArray[np.int64], num_top: int) -> Ranked:
        """Each row's token with its logprob and rank, and the num_top best beside it.

        Shapes: tokens [R], each below V; num_top at most V.
        """
        _, address, num_rows, num_tokens = scores
        if not (0 <= num_top <= num_tokens and len(tokens) == num_rows):
            raise ValueError(f"{len(tokens)} tokens, {num_top} best: of {num_rows} x {num_tokens}")
        if num_rows and not 0 <= tokens.min() <= tokens.max() < num_tokens:
            raise ValueError(f"a token is outside of a vocabulary of {num_tokens}")
        tokens = np.ascontiguousarray(tokens, np.int64)
        ranked = Ranked(
            np.empty(num_rows, np.float32),
            np.empty(num_rows, np.int64),
            np.empty((num_rows, num_top), np.int64),
            np.empty((num_rows, num_top), np.float32),
        )
        self._rank(
            self._handle,
            address,
            num_rows,
            num_tokens,
            tokens.ctypes.data,
            num_top,
            *[column.ctypes.data for column in ranked],
        )
        return ranked


def _pack(draw: Draw) -> bytes:
    row, key, temperature, top_k, top_p, min_p = draw
    return _DRAW.pack(key, top_p, temperature, min_p, min(top_k, _MOST_TOP_K), row)
