"""An allocation that failed, as a sentence that says what asked for it and what to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from forebay_runtime.config import StartError

_TOO_LITTLE = ("can't allocate memory", "out of memory", "status_alloc_failed")
"""What torch, on a CPU, CUDA's driver, and its libraries say."""


@contextmanager
def explain_out_of_memory(term: str, knob: str) -> Iterator[None]:
    """Turn an allocation that failed into a sentence with the term that asked and what to change.

    Raises: StartError.
    """
    try:
        yield
    except MemoryError as error:
        raise _out_of_memory(term, knob, error) from error
    except RuntimeError as error:
        cause = _find_out_of_memory(error)
        if cause is None:
            raise
        raise _out_of_memory(term, knob, cause) from error


def _find_out_of_memory(error: BaseException | None) -> BaseException | None:
    """The error itself, or one that it came of: a capture that runs out of memory ends with its
    own, and the driver's has no class."""
    while error is not None:
        text = str(error).lower()
        if isinstance(error, torch.OutOfMemoryError) or any(each in text for each in _TOO_LITTLE):
            return error
        error = error.__cause__ or error.__context__
    return None


def _out_of_memory(term: str, knob: str, error: BaseException) -> StartError:
    detail = str(error).splitlines()[0] if str(error) else type(error).__name__
    return StartError(f"There is too little memory for the {term}; {knob} ({detail})")
