"""The other ranks of a process, found and waited for from outside."""

import time
from pathlib import Path

_PATIENCE_SECONDS = 60


def find_ranks(parent_id: int) -> list[int]:
    """The process ids of a server's other ranks."""
    children = [
        int(child)
        for listed in Path(f"/proc/{parent_id}/task").glob("*/children")
        for child in listed.read_text().split()
    ]
    return [child for child in children if "parallel.follower" in _command(child)]


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
