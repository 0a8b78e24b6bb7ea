"""A client that loads any server with OpenAI's API; a process of its own, the same for all servers.

    python bench/serving/client.py PORT CASE-AS-JSON SEED

Prints one JSON object: answers, errors, the seconds from the first request to the last answer, and
the processor seconds that the client itself took meanwhile. Standard library only.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from serving.answer import Answer, AnswerError, Arrival, read_answer  # noqa: E402
from serving.case import Case  # noqa: E402
from serving.prompts import build_prompts  # noqa: E402

_MOST_SECONDS = 600.0
_LAST_CHUNK = b"0\r\n\r\n"
Heard = tuple[float, list[Arrival]]
"""When a request was sent, and what came back."""


class _Listener(asyncio.Protocol):
    """Keeps what comes until the answer's end."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.ended = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.arrivals.append((time.perf_counter(), data))
        if data.endswith(_LAST_CHUNK):
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def ask(port: int, request: bytes) -> Heard:
    """Send one request on a connection of its own, since some servers close theirs after a stream.

    Raises: OSError if nobody listens.
    """
    loop = asyncio.get_running_loop()
    sent = time.perf_counter()
    transport, listener = await loop.create_connection(_Listener, "127.0.0.1", port)
    try:
        transport.write(request)
        await listener.ended
    finally:
        transport.close()
    return sent, listener.arrivals


def build_request(prompt: str, num_tokens: int, model: str) -> bytes:
    """A streamed completion of exactly so many tokens."""
    return build_post(
        "/v1/completions",
        {
            "model": model,
            "prompt": prompt,
            "max_tokens": num_tokens,
            "temperature": 0,
            "stream": True,
            "ignore_eos": True,
            "stream_options": {"include_usage": True},
        },
    )


def build_post(path: str, asked: Mapping[str, object]) -> bytes:
    """A request of JSON."""
    body = json.dumps(asked).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def load(port: int, case: Case, seed: str, model: str = "measured") -> dict[str, Any]:
    """Warm up by one request, then send all the others, so many at a time as the case says.

    What goes wrong is told, the first request's failure too.
    """
    first, *rest = (
        build_request(prompt, case.output_tokens, model) for prompt in build_prompts(case, seed)
    )
    heard: list[Heard] = []
    errors: list[str] = []
    await _send_all(port, iter([first]), heard, errors)
    _read(heard, errors)
    heard, waiting = [], iter(rest)
    start, cpu_start = time.perf_counter(), time.process_time()
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            clients = (_send_all(port, waiting, heard, errors) for _ in range(case.num_clients))
            await asyncio.gather(*clients)
    except TimeoutError:
        errors.append(f"cut off after {_MOST_SECONDS:.0f} s")
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    answers = _read(heard, errors)
    return {
        "answers": [asdict(answer) for answer in answers],
        "errors": errors,
        "seconds": seconds,
        "client_cpu_seconds": cpu_seconds,
    }


async def _send_all(
    port: int, waiting: Iterator[bytes], heard: list[Heard], errors: list[str]
) -> None:
    for request in waiting:
        try:
            heard.append(await ask(port, request))
        except OSError as error:
            errors.append(repr(error))


def _read(heard: list[Heard], errors: list[str]) -> list[Answer]:
    answers = []
    for sent, arrivals in heard:
        try:
            answers.append(read_answer(sent, arrivals))
        except (AnswerError, ValueError, KeyError, IndexError) as error:
            errors.append(f"{type(error).__name__}: {error}")
    return answers


def main() -> None:
    """Load the server, print what came of it."""
    port, case, seed = sys.argv[1:]
    given = Case(**cast(dict[str, Any], json.loads(case)))
    print(json.dumps(asyncio.run(load(int(port), given, seed))))


if __name__ == "__main__":
    main()
