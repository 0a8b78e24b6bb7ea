"""The loop of one worker: take a key, have it reconciled, and decide what its failure means."""

import logging
from datetime import UTC, datetime

from forebay_operator.apply import Refused
from forebay_operator.cluster import FAILURES
from forebay_operator.lease import LeaseLost
from forebay_operator.observed import Key
from forebay_operator.reconcile import Reconciler
from forebay_operator.telemetry.metrics import Metrics
from forebay_operator.workqueue import WorkQueue

log = logging.getLogger(__name__)

REFUSED_SECONDS = 7.0
"""How long a refused child waits at most, give or take: no event tells that it would be taken now.
"""


async def work(queue: WorkQueue, reconciler: Reconciler, metrics: Metrics) -> None:
    """Take keys from the queue until cancelled, or until the lease is lost."""
    while True:
        key = await queue.get()
        try:
            with metrics.time_reconcile() as outcome:
                outcome.name = await attempt(key, queue, reconciler, metrics)
        finally:
            queue.done(key)


async def attempt(key: Key, queue: WorkQueue, reconciler: Reconciler, metrics: Metrics) -> str:
    """Reconcile once; how it ended. What failed comes back after a while."""
    try:
        now = datetime.now(UTC)
        reconciler.follow_clock(now)
        decided = await reconciler.reconcile(key, now)
    except LeaseLost:
        raise
    except Refused as refusal:
        delay = queue.retry(key, REFUSED_SECONDS)
        log.info("Child was refused service=%s retry=%.1fs %s", key, delay, refusal.sentence)
        outcome = "refused"
    except FAILURES as error:
        delay = queue.retry(key)
        log.warning("API request failed service=%s retry=%.1fs error=%r", key, delay, error)
        outcome = "api"
    except Exception as error:
        delay = queue.retry(key)
        log.exception("Reconcile failed service=%s retry=%.1fs", key, delay)
        await reconciler.admit(key, error)
        outcome = "internal"
    else:
        queue.succeeded(key)
        if decided is None:
            return "waiting"
        metrics.count_tallies(decided.tallies)
        return "done"
    metrics.count_error(outcome)
    return outcome
