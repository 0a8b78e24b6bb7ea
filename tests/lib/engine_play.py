"""Plays requests on an engine without a server: what each got, with what the engine did for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.engine import Engine
from forebay_runtime.parallel.followers import Followers
from forebay_runtime.request import Output, TokenLogprobs


@dataclass
class Answer:
    """All that one request got."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    last: Output | None = None
    first: Output | None = None


def load_engine(path: Path, followers: Followers | None = None, **flags: Any) -> Engine:
    """An engine in float32 on the CPU, with one thread: tiny products wait for more of them."""
    config = EngineConfig(path, device="cpu", dtype="float32", **flags)
    engine = build_engine(config, followers=followers if config.num_ranks > 1 else None)
    torch.set_num_threads(1)
    return engine


def play(engine: Engine, requests: Iterable[Any]) -> dict[str, Answer]:
    """Add all requests at once and step until each has ended; no error may come."""
    answers = play_with_errors(engine, requests)
    errors = {key: answer.last.error for key, answer in answers.items() if answer.last}
    if any(errors.values()):
        raise AssertionError(f"requests ended with errors: {errors}")
    return answers


def play_with_errors(engine: Engine, requests: Iterable[Any]) -> dict[str, Answer]:
    """Like play, for requests of which some end with an error."""
    answers: dict[str, Answer] = {}
    for request in requests:
        answers[request.request_id] = Answer()
        engine.add(request)
    while engine.has_work:
        for output in engine.step():
            answer = answers[output.request_id]
            answer.token_ids += output.token_ids
            answer.logprobs += output.logprobs
            answer.first, answer.last = answer.first or output, output
    return answers


def play_alone(engine: Engine, requests: Iterable[Any]) -> dict[str, Answer]:
    """Play one request after another."""
    answers: dict[str, Answer] = {}
    for request in requests:
        answers |= play(engine, [request])
    return answers


def tokens_of(answers: dict[str, Answer]) -> dict[str, tuple[list[int], list[TokenLogprobs]]]:
    """What must be equal: tokens, and logprobs to the last bit."""
    return {key: (answer.token_ids, answer.logprobs) for key, answer in answers.items()}
