"""A rank that does what rank 0 tells it: `python -m`, started by `rank_process`.

It ends when rank 0 does, and at nobody else's word: signals that end a pod are rank 0's to answer,
which drains first and needs all ranks for that.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from multiprocessing.connection import Connection
from typing import Any

from forebay_runtime.parallel.vitals import Vitals, die_with
from forebay_runtime.start.threads import prepare_libraries

logger = logging.getLogger(__name__)


def main(arguments: list[str]) -> None:
    """Follow until rank 0 is gone."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    rank, orders_fd, pulse_fd, meeting_fd, parent_id = map(int, arguments)
    die_with(parent_id)
    logging.basicConfig(
        format=f"%(asctime)s %(levelname)s rank={rank} %(message)s", level=logging.INFO
    )
    vitals = Vitals(socket.socket(fileno=pulse_fd))
    orders: Connection[Any, Any] = Connection(orders_fd)
    prepare_libraries()
    # Slow to import, so only now: a rank that is stopped before it is tied to rank 0 outlives it.
    from forebay_runtime.parallel.messages import Answer
    from forebay_runtime.parallel.rank_part import RankPart

    part = RankPart(rank, meeting_fd)
    orders.send(Answer())
    try:
        while True:
            _follow(part, orders)
            vitals.num_done += 1
    except (EOFError, ConnectionError):
        os._exit(0)


def _follow(part: Any, orders: Connection[Any, Any]) -> None:
    """Do one thing that is told."""
    message = orders.recv()
    try:
        answer = part.do(message)
    except Exception as error:
        logger.exception("Failed")
        _tell_last(orders, error)
        os._exit(1)
    if answer is not None:
        orders.send(answer)


def _tell_last(orders: Connection[Any, Any], error: Exception) -> None:
    from forebay_runtime.parallel.messages import Answer

    text = " ".join(f"{type(error).__name__}: {error}".split())
    try:
        orders.send(Answer(failure=text))
    except OSError:
        logger.info("Rank 0 was gone already")


if __name__ == "__main__":
    main(sys.argv[1:])
