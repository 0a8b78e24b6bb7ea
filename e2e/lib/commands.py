"""Programs run for their effect: their output goes to a log, and is shown only when they fail."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from home import HOME


class CommandError(RuntimeError):
    """A program failed; the message holds the end of what it wrote, and where the rest is."""


def run(*command: str | Path, log: str, env: Mapping[str, str] | None = None) -> None:
    """Run a program and append what it writes to the log of that name.

    Raises: CommandError when it does not exit with 0.
    """
    path = HOME / "logs" / f"{log}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as output:
        print("$", *command, file=output, flush=True)
        begin = output.tell()
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(env or {})},
            check=False,
        )
    if ended.returncode != 0:
        said = path.read_text(errors="replace")[begin:].splitlines()[-20:]
        command_line = " ".join(map(str, command))
        raise CommandError(
            "\n".join([f"`{command_line}` exited with {ended.returncode}:", *said, f"({path})"])
        )


def read(*command: str | Path, stdin: str | None = None) -> str:
    """Return what a program prints.

    Raises: CommandError with what it wrote to stderr when it does not exit with 0.
    """
    ended = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        command_line = " ".join(map(str, command))
        raise CommandError(
            f"`{command_line}` exited with {ended.returncode}: {ended.stderr.strip()}"
        )
    return ended.stdout
