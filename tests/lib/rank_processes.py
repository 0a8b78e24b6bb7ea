"""The other ranks of a process, found and waited for from outside."""

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE_SECONDS = 60
_PTRACE_DETACH, _PTRACE_SEIZE, _PTRACE_INTERRUPT = 17, 0x4206, 0x4207
_ANY_THREAD = 0x40000000


def find_ranks(parent_id: int) -> list[int]:
    """The process ids of a server's other ranks."""
    children = [
        int(child)
        for listed in Path(f"/proc/{parent_id}/task").glob("*/children")
        for child in listed.read_text().split()
    ]
    return [child for child in children if "parallel.follower" in _command(child)]


@contextmanager
def hung(process_id: int) -> Iterator[None]:
    """Hold a process's first thread, as a library that never returns would; its others go on.

    Until the block's end the kernel does not let go of the process either, even of one that is
    killed, as if it waited for a disk.
    """
    _trace(_PTRACE_SEIZE, process_id)
    _trace(_PTRACE_INTERRUPT, process_id)
    os.waitpid(process_id, _ANY_THREAD)
    try:
        yield
    finally:
        if is_alive(process_id):
            _trace(_PTRACE_DETACH, process_id)
        else:
            os.waitpid(process_id, _ANY_THREAD)


def _trace(request: int, process_id: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long] * 4
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(request, process_id, 0, 0) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace {request:#x} of {process_id}: {os.strerror(number)}")


def is_alive(process_id: int) -> bool:
    """Does it run, or is it stopped? What only waits to be reaped does not live."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def wait_gone(process_id: int) -> None:
    """Wait for a process's end."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while is_alive(process_id):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {process_id} lives on")
        time.sleep(0.02)


def _command(process_id: int) -> str:
    try:
        return Path(f"/proc/{process_id}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
