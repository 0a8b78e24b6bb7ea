"""When a cron expression fires, in the time zone of the people who wrote it.

Debian's rules hold where clocks change: a time that a change skips fires right after the gap, and a
time that comes twice fires the first time.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

NUM_FIELDS = 5
_BROKEN = (CronSimError, AssertionError, TypeError, ValueError)
"""What the parser raises for different kinds of nonsense."""


class CronError(ValueError):
    """It cannot be understood, or never fires; the message is a clause that says which."""


def check_cron(cron: str, zone: str) -> None:
    """Raise CronError unless the expression fires now and then in this zone."""
    _read_zone(zone)
    if len(cron.split()) != NUM_FIELDS:
        raise CronError(f"{cron!r} does not have the {NUM_FIELDS} fields of cron")
    try:
        next(CronSim(cron, datetime(2026, 1, 1, tzinfo=UTC)))
    except StopIteration as error:
        raise CronError(f"{cron!r} never comes") from error
    except _BROKEN as error:
        raise CronError(f"{cron!r} is not understood by cron ({error})") from error


def find_fires(cron: str, zone: str, now: datetime) -> tuple[datetime | None, datetime | None]:
    """The last time at or before now, and the next one after it; None where there is none within
    fifty years."""
    here = now.astimezone(_read_zone(zone)).replace(microsecond=0)
    previous = next(CronSim(cron, _shift(here, 1), reverse=True), None)
    # Backwards, an hour that comes twice is taken for its second time; forwards it is not.
    for fire in filter(_is_shown, CronSim(cron, previous or here)):
        if fire.astimezone(UTC) > now:
            return _in_utc(previous), _in_utc(_first_since(cron, now, fire))
        previous = fire
    return _in_utc(previous), None


def _is_shown(moment: datetime) -> bool:
    """Does a clock there ever show it? Forwards, a midnight that a change skips is a time, too."""
    shown = moment.astimezone(UTC).astimezone(moment.tzinfo)
    return shown.replace(tzinfo=None) == moment.replace(tzinfo=None)


def _first_since(cron: str, now: datetime, fire: datetime) -> datetime:
    """The first time after now, no later than fire.

    Forwards, a day whose midnight a change skips is passed over; backwards it is not.
    """
    for earlier in CronSim(cron, fire, reverse=True):
        if earlier.fold or earlier.astimezone(UTC) <= now:
            break
        fire = earlier
    return fire


def _shift(moment: datetime, seconds: int) -> datetime:
    """Within one zone Python adds to the clock's face, not to the time."""
    return (moment.astimezone(UTC) + timedelta(seconds=seconds)).astimezone(moment.tzinfo)


def _in_utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)


@lru_cache(maxsize=256)
def _read_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise CronError(f"no time zone is called {name!r}") from error
