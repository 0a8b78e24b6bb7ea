"""What `forebay serve` was asked for: one frozen value, made by the command line.

Imports nothing slow, so that flags are checked before torch is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_TERMINATION_LOG = Path("/dev/termination-log")


@dataclass(frozen=True)
class ServeOptions:
    """The server's own flags; the engine's are in its EngineConfig.

    started_at: time.monotonic() of the process's start.
    max_num_queued_reqs, max_num_queued_tokens: more than this waits, and newcomers get 429; None
    is no limit.
    lame_duck_seconds: how long newcomers are served after SIGTERM.
    shutdown_timeout: seconds that answers in progress get after that.
    max_request_seconds: a request not done by then ends with a timeout error; None is never.
    stream_interval: tokens in one event of a stream, its first token apart, which goes out at once.
    keep_alive_seconds: a stream that has said nothing for so long says a comment.
    seed: where seeds of requests without one come from; None is chance.
    allowed_origins: pages of these, or of "*" any, may ask from a browser.
    max_logprobs: how many logprobs a token a request may ask for.
    chat_template: a file with a template to use instead of the model's own.
    tool_call_parser, reasoning_parser: how the model writes tool calls and thoughts; None is what
    its chat template shows.
    prepares_structures: is the vocabulary spelt for structured output before the server is ready?
    head_seconds, body_seconds: what a client gets to send a request's head and its body in; a
    slower one is not trying.
    min_stall_seconds: no step is called stuck before this; a cold disk or a busy neighbour can
    cost many seconds.
    """

    served_model_name: str
    started_at: float = field(default_factory=time.monotonic)
    host: str = "0.0.0.0"
    port: int = 8000
    allowed_origins: Sequence[str] = ()
    max_num_seqs: int = 8
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    shutdown_timeout: float = 120.0
    lame_duck_seconds: float = 5.0
    max_request_seconds: float | None = None
    stream_interval: int = 1
    keep_alive_seconds: float = 10.0
    seed: int | None = None
    max_logprobs: int = 20
    chat_template: Path | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    prepares_structures: bool = True
    head_seconds: float = 60.0
    body_seconds: float = 300.0
    min_stall_seconds: float = 30.0
    termination_log: Path = DEFAULT_TERMINATION_LOG
