"""The program that tries a structure out where it can do no harm: `python -m …structured.trial FD`.

It reads the vocabulary once and then forks for every structure; the fork is bounded in memory and
time by the kernel, builds the grammar, takes some steps through it, and answers with what it cost.
What it survives may be built in the server. Imports no torch; ends when the server's end closes.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import resource
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from forebay_runtime.structured.explain import SLOW, explain, explain_stop
from forebay_runtime.structured.grammar import build_grammar
from forebay_runtime.structured.limits import (
    MAX_MEMORY_BYTES,
    MAX_STEP_CPU_SECONDS,
    MAX_WALL_SECONDS,
    NICENESS,
    parser_limits,
)
from forebay_runtime.structured.spec import TITLES, Kind, StructureError
from forebay_runtime.structured.vocabulary import Vocabulary, build_library_tokenizer

_NUM_WALKS, _NUM_STEPS = 2, 24


def main() -> None:
    """Serve until the other end of the socket whose number is the only argument is closed."""
    door = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the server's to handle
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so forks leave no zombies
    os.nice(NICENESS)
    with sys.stdin.buffer as words:  # closed, it takes no memory
        vocabulary: Vocabulary = pickle.load(words)
    tokenizer = build_library_tokenizer(vocabulary)
    special_ids = vocabulary.special_ids
    del vocabulary
    while True:
        message, fds, _, _ = socket.recv_fds(door, 1, 1)
        if not message:
            return
        with socket.socket(fileno=fds[0]) as client:
            if os.fork() == 0:
                _serve_one(client, special_ids, tokenizer)


def _serve_one(
    client: socket.socket, special_ids: Mapping[str, int], tokenizer: LLTokenizer
) -> None:
    """Answer one structure, in a fork of its own; does not return."""
    status = 1
    try:
        client.sendall(b"\n")
        _bound_memory()
        with client.makefile("rb") as reader:
            request = json.load(reader)
        _bound_time(request["cpu_seconds"])
        client.sendall(json.dumps(_try_out(request, special_ids, tokenizer)).encode())
        status = 0
    finally:
        os._exit(status)


def _bound_memory() -> None:
    """Have the kernel refuse memory beyond a measure; the library then ends the process."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)  # it would print
    num_pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = num_pages * resource.getpagesize() + MAX_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _bound_time(cpu_seconds: float) -> None:
    """Have the kernel end this process, whatever code runs by then."""
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    signal.setitimer(signal.ITIMER_REAL, MAX_WALL_SECONDS)


def _try_out(
    request: dict[str, Any], special_ids: Mapping[str, int], tokenizer: LLTokenizer
) -> dict[str, Any]:
    kind: Kind = request["kind"]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        grammar = build_grammar(kind, request["text"], special_ids)
        matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=parser_limits())
        if matcher.is_error():
            raise StructureError(explain(kind, matcher.get_error()))
        for seed in range(_NUM_WALKS):
            _walk(kind, matcher.deep_copy(), random.Random(seed))
    except StructureError as exc:
        return {"error": str(exc)}
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"grammar": grammar, "memory_bytes": grown * 1024}


def _walk(kind: Kind, matcher: LLMatcher, chance: random.Random) -> None:
    """Draw some tokens, to see that there is a first one and that none takes long to find."""
    for step in range(_NUM_STEPS):
        if matcher.is_stopped():
            return
        started = time.thread_time()
        mask = matcher.compute_bitmask()
        if step == 0 and (matcher.is_error() or not any(mask)):
            raise StructureError(f"The {TITLES[kind]} cannot be met by any text")
        if time.thread_time() - started > MAX_STEP_CPU_SECONDS:
            raise StructureError(SLOW)
        if matcher.is_error() or not matcher.consume_token(_draw(mask, chance)):
            raise StructureError(explain_stop(matcher.stop_reason(), matcher.get_error()))


def _draw(mask: bytes, chance: random.Random) -> int:
    start = chance.randrange(len(mask))
    index = next(i % len(mask) for i in range(start, start + len(mask)) if mask[i % len(mask)])
    return index * 8 + chance.choice([bit for bit in range(8) if mask[index] >> bit & 1])


if __name__ == "__main__":
    main()
