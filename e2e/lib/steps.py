"""What a person sees during set-up: a line as a step begins, one with its seconds as it ends."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

_STARTED = time.monotonic()
_PRINTING = threading.Lock()


def say(text: str) -> None:
    """Print a line with the seconds since the program started."""
    with _PRINTING:
        print(f"[{time.monotonic() - _STARTED:6.1f} s] {text}", flush=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say that `what` begins, and how long it took."""
    say(f"{what} ...")
    started = time.monotonic()
    try:
        yield
    except BaseException:
        say(f"{what}: failed after {time.monotonic() - started:.1f} s")
        raise
    say(f"{what}: {time.monotonic() - started:.1f} s")


def at_once(*jobs: Callable[[], None]) -> None:
    """Run independent jobs side by side; raise the first error when all have ended."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        running = [pool.submit(job) for job in jobs]
    for job in running:
        job.result()
