"""Whether this process should be started anew.

Only what a restart mends counts: a loop that hangs, a watch that went silent, a key that no worker
gets done with. Standing by is no failure, nor is an API server that does not answer: every loop
beats once a round, also when what it tried has failed. The event loop itself needs no beat: it is
what answers the probe.
"""

from dataclasses import dataclass

from forebay_operator.resync import Resync
from forebay_operator.telemetry.heartbeats import Heartbeats
from forebay_operator.workqueue import WorkQueue

LIMITS_SECONDS = {"lease": 90.0, "scrape": 300.0}
"""How long a round of a loop may take: longer than its requests, with all their time-outs."""
LONGEST_WORK_SECONDS = 300.0


@dataclass(frozen=True)
class Liveness:
    """What is looked at."""

    loops: Heartbeats
    queue: WorkQueue
    resync: Resync

    def complaint(self) -> str:
        """Why this process should be started anew; empty if it should not."""
        for loop, age in self.loops.silent(LIMITS_SECONDS).items():
            return f"The {loop} loop is silent for {age:.0f} s"
        if self.queue.longest_work_seconds > LONGEST_WORK_SECONDS:
            return f"A worker is at one service for {self.queue.longest_work_seconds:.0f} s"
        return self.resync.complaint()
