"""Numbers in status that change with every scrape: written at most every 30 seconds."""

from datetime import datetime

from forebay_operator.observed import ScalingMemory

REFRESH_SECONDS = 30.0


def may_refresh(memory: ScalingMemory, now: datetime) -> bool:
    """Whether live numbers that are in status already may be replaced by newer ones."""
    if memory.reported_at is None:
        return True
    return (now - memory.reported_at).total_seconds() >= REFRESH_SECONDS
