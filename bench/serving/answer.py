"""An answer as it came over the wire, read once the measurement is over.

While a server is measured, the client does no more than keep what arrives with its time: the client
shares the processors with the server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Arrival = tuple[float, bytes]
"""When a piece came, in seconds of the client's clock, and what it was."""


class AnswerError(Exception):
    """The server answered with an error, or with something that is no stream of tokens."""


@dataclass(frozen=True)
class Answer:
    """One answered request.

    ttft_seconds: sent to first token. tpot_seconds: (last token - first token) / (tokens - 1), so
    that it holds what a request waits for while others' prompts are read; None for one token.
    """

    ttft_seconds: float
    tpot_seconds: float | None
    latency_seconds: float
    output_tokens: int
    prompt_tokens: int | None
    cached_tokens: int | None


def read_answer(sent: float, arrivals: list[Arrival]) -> Answer:
    """Take the times and the server's own count of tokens from an answer.

    Raises: AnswerError with what the server said instead.
    """
    times: list[float] = []
    usage: dict[str, Any] = {}
    for when, event in _events(_body(arrivals)):
        if "error" in event:
            raise AnswerError(str(event["error"])[:200])
        usage = event.get("usage") or usage
        # The first tokens of a character of several come without text, and count.
        choice = (event.get("choices") or [None])[0]
        if choice and (choice.get("text") or choice.get("finish_reason") is None):
            times.append(when)
    if not times:
        raise AnswerError("no token came")
    num_tokens = usage.get("completion_tokens", len(times))
    return Answer(
        ttft_seconds=times[0] - sent,
        tpot_seconds=(times[-1] - times[0]) / (num_tokens - 1) if num_tokens > 1 else None,
        latency_seconds=arrivals[-1][0] - sent,
        output_tokens=num_tokens,
        prompt_tokens=usage.get("prompt_tokens"),
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
    )


def _body(arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
    """The body's pieces, without head and chunks' lengths.

    Raises: AnswerError where the status is not 200.
    """
    pieces = iter(arrivals)
    buffer = b""
    when = 0.0
    while b"\r\n\r\n" not in buffer:
        when, piece = next(pieces, (when, b""))
        if not piece:
            raise AnswerError("the connection was closed before an answer came")
        buffer += piece
    head, _, rest = buffer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1]
    if status != b"200":
        said = rest + b"".join(piece for _, piece in pieces)
        raise AnswerError(f"HTTP {status.decode()}: {said[:200].decode(errors='replace')}")
    following = _chain((when, rest), pieces)
    is_chunked = b"transfer-encoding: chunked" in head.lower()
    yield from _unchunked(following) if is_chunked else following


def _chain(first: Arrival, others: Iterator[Arrival]) -> Iterator[Arrival]:
    yield first
    yield from others


def _unchunked(pieces: Iterable[Arrival]) -> Iterator[Arrival]:
    """What HTTP's chunks hold: a length in hexadecimal, a line's end, so many bytes, another."""
    buffer = b""
    for when, piece in pieces:
        buffer += piece
        while (line_end := buffer.find(b"\r\n")) >= 0:
            length = int(buffer[:line_end].split(b";")[0], 16)
            start = line_end + 2
            if length == 0 or len(buffer) < start + length + 2:
                break
            yield when, buffer[start : start + length]
            buffer = buffer[start + length + 2 :]


def _events(pieces: Iterable[Arrival]) -> Iterator[tuple[float, dict[str, Any]]]:
    """Server-sent events with the time at which each was whole."""
    buffer = b""
    for when, piece in pieces:
        *lines, buffer = (buffer + piece).split(b"\n")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            if line.startswith(b"data:") and data != b"[DONE]":
                yield when, json.loads(data)
