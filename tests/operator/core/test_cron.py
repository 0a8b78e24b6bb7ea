"""When cron fires, where clocks are put forward and back, too."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_operator.cron import CronError, check_cron, find_fires

BERLIN = "Europe/Berlin"  # 2026: forward on 29 March at 2:00, back on 25 October at 3:00
SANTIAGO = "America/Santiago"  # 2026: back on 5 April, forward on 6 September, both at midnight


def utc(*when: int) -> datetime:
    return datetime(2026, *when, tzinfo=UTC)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cron", "zone", "now", "last", "following"),
    [
        ("0 8 * * 1-5", BERLIN, utc(1, 9, 12, 0), utc(1, 9, 7, 0), utc(1, 12, 7, 0)),
        ("0 8 * * 1-5", BERLIN, utc(7, 3, 6, 0), utc(7, 3, 6, 0), utc(7, 6, 6, 0)),
        ("0 8 * * 1-5", BERLIN, utc(7, 3, 5, 59, 59), utc(7, 2, 6, 0), utc(7, 3, 6, 0)),
        ("30 2 * * *", BERLIN, utc(3, 29, 1, 0), utc(3, 29, 1, 0), utc(3, 30, 0, 30)),
        ("30 2 * * *", BERLIN, utc(3, 29, 0, 59), utc(3, 28, 1, 30), utc(3, 29, 1, 0)),
        ("30 2 * * *", BERLIN, utc(10, 25, 0, 30), utc(10, 25, 0, 30), utc(10, 26, 1, 30)),
        ("30 2 * * *", BERLIN, utc(10, 25, 1, 10), utc(10, 25, 0, 30), utc(10, 26, 1, 30)),
        ("30 2 * * *", BERLIN, utc(10, 25, 1, 30), utc(10, 25, 0, 30), utc(10, 26, 1, 30)),
        ("*/30 * * * *", BERLIN, utc(10, 25, 1, 10), utc(10, 25, 1, 0), utc(10, 25, 1, 30)),
        ("*/20 1 * * 0", SANTIAGO, utc(9, 6, 3, 59), utc(8, 30, 5, 40), utc(9, 6, 4, 0)),
        ("*/20 1 * * 0", SANTIAGO, utc(9, 6, 4, 0), utc(9, 6, 4, 0), utc(9, 6, 4, 20)),
        ("0 0 29 2 *", "UTC", utc(6, 1), datetime(2024, 2, 29, tzinfo=UTC), None),
    ],
    ids=[
        "Friday's morning stands over the weekend",
        "at its very second it has fired",
        "a second before it has not",
        "a time that is skipped comes right after the gap",
        "and not before",
        "a time that comes twice fires the first time",
        "in the hour that comes twice it has fired already",
        "and does not fire again",
        "what fires all day fires in both hours",
        "a day without a midnight comes",
        "and is not left out once it is there",
        "a leap day is years away, both ways",
    ],
)
def test_the_last_and_the_next_time(
    cron: str, zone: str, now: datetime, last: datetime, following: datetime | None
) -> None:
    assert find_fires(cron, zone, now) == (last, following or datetime(2028, 2, 29, tzinfo=UTC))


ZONES = st.sampled_from([BERLIN, "America/New_York", SANTIAGO, "Asia/Kolkata", "UTC"])
MINUTES = {"0": {0}, "30": {30}, "59": {59}, "*/20": {0, 20, 40}}
HOURS = {
    **{"1": {1}, "2": {2}, "3": {3}, "1,2,3": {1, 2, 3}, "8-20": set(range(8, 21))},
    **{"*": set(range(24)), "*/2": set(range(0, 24, 2))},
}
DAYS = {"*": set(range(7)), "0": {6}, "6,0": {5, 6}, "1-5": set(range(5))}  # Monday is 0
MOMENTS = st.sampled_from([utc(3, 8), utc(3, 29), utc(4, 5), utc(9, 6), utc(10, 25), utc(11, 1)])


def all_fires(minute: str, hour: str, day: str, zone: str, now: datetime) -> list[datetime]:
    """Every time within fifteen days of now, by looking at each minute that may be one.

    What says * of minutes or hours goes by the clock as it is. What names a time of day comes once
    where the clock shows it, and right after the gap where that swallows it.
    """
    here, found = ZoneInfo(zone), set[datetime]()
    is_by_the_clock = "*" in minute[0] + hour[0]
    first = (now - timedelta(days=15)).replace(minute=0, second=0)
    for hours in range(30 * 24):
        for minutes in (0, 10, 20, 29, 30, 40, 50, 59):
            at = first + timedelta(hours=hours, minutes=minutes)
            face = at.astimezone(here).replace(tzinfo=None) if is_by_the_clock else at
            face = face.replace(tzinfo=None)
            is_named = face.minute in MINUTES[minute] and face.hour in HOURS[hour]
            if not is_named or face.weekday() not in DAYS[day]:
                continue
            found.add(at if is_by_the_clock else _shown_at(face, here))
    return sorted(found)


def _shown_at(face: datetime, here: ZoneInfo) -> datetime:
    """When the clock shows this for the first time, or where it never does, when the gap ends."""
    at = face.replace(tzinfo=here).astimezone(UTC)
    while at.astimezone(here).replace(tzinfo=None) < face:
        at += timedelta(minutes=1)
    if at.astimezone(here).replace(tzinfo=None) == face:
        return at
    while (at - timedelta(minutes=1)).astimezone(here).replace(tzinfo=None) > face:
        at -= timedelta(minutes=1)
    return at


@settings(deadline=None, max_examples=150)
@given(
    *(st.sampled_from(sorted(each)) for each in (MINUTES, HOURS, DAYS)),
    ZONES,
    MOMENTS,
    st.integers(-14 * 60, 38 * 60),
)
def test_they_are_neighbours_of_now_among_all_times(
    minute: str, hour: str, weekday: str, zone: str, day: datetime, minutes: int
) -> None:
    now = day + timedelta(minutes=minutes)
    fires = all_fires(minute, hour, weekday, zone, now)
    last = max(fire for fire in fires if fire <= now)
    following = min(fire for fire in fires if fire > now)
    assert find_fires(f"{minute} {hour} * * {weekday}", zone, now) == (last, following)


@pytest.mark.parametrize(
    ("cron", "zone", "words"),
    [
        ("* * * *", "UTC", "does not have the 5 fields"),
        ("0 0 8 * * *", "UTC", "does not have the 5 fields"),
        ("60 8 * * *", "UTC", "Bad minute"),
        ("0 8 * * 1#2-3", "UTC", "Bad day-of-week"),
        ("0 0 30 2 *", "UTC", "Bad day-of-month"),
        ("0 8 * * *", "Europe/Atlantis", "no time zone is called 'Europe/Atlantis'"),
        ("0 8 * * *", "../../etc/passwd", "no time zone is called"),
        ("0 8 * * *", "Europe", "no time zone is called"),
    ],
)
def test_what_is_no_time_is_refused(cron: str, zone: str, words: str) -> None:
    with pytest.raises(CronError, match=words):
        check_cron(cron, zone)
