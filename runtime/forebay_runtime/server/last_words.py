"""Why a process ends, in one line: the last on stderr, and where Kubernetes looks for it."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from forebay_budget.inspection import ModelError
from forebay_runtime.config import StartError
from forebay_runtime.parallel.rank_loss import RankLost
from forebay_runtime.text.tokenizer import TokenizerError

_MAX_CHARS = 1024
_FOR_PEOPLE = (StartError, ModelError, TokenizerError, RankLost)


def is_for_people(cause: BaseException) -> bool:
    """Is the error's message a sentence that needs no traceback?"""
    return isinstance(cause, _FOR_PEOPLE)


def describe_cause(cause: BaseException) -> str:
    """The error as a sentence, with its type where the message was not made for people."""
    text = str(cause) or type(cause).__name__
    return text if is_for_people(cause) else f"{type(cause).__name__}: {text}"


def speak_last_words(cause: str, termination_log: Path) -> None:
    """Say why the process ends.

    termination_log: written only where it exists, because then it is Kubernetes's.
    """
    line = " ".join(f"forebay serve: {cause}".split())[:_MAX_CHARS]
    print(line, file=sys.stderr, flush=True)
    if termination_log.exists():
        with contextlib.suppress(OSError):
            termination_log.write_text(line, encoding="utf-8")
