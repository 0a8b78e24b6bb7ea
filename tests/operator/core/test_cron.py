"""When cron fires, where clocks are put forward and back, too."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_operator.cron import CronError, check_cron, find_fires

BERLIN = "Europe/Berlin"  # 2026: forward on 29 March at 2:00, back on 25 October at 3:00


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
        "a leap day is years away, both ways",
    ],
)
def test_the_last_and_the_next_time(
    cron: str, zone: str, now: datetime, last: datetime, following: datetime | None
) -> None:
    assert find_fires(cron, zone, now) == (last, following or datetime(2028, 2, 29, tzinfo=UTC))


ZONES = st.sampled_from([BERLIN, "America/New_York", "America/Santiago", "Asia/Kolkata", "UTC"])
CRONS = st.builds(
    lambda minute, hour, day: f"{minute} {hour} * * {day}",
    st.sampled_from(["0", "30", "59", "*/20"]),
    st.sampled_from(["1", "2", "3", "1,2,3", "*", "*/2", "8-20"]),
    st.sampled_from(["*", "0", "6,0", "1-5"]),
)
MOMENTS = st.sampled_from([utc(3, 8), utc(3, 29), utc(4, 5), utc(9, 6), utc(10, 25), utc(11, 1)])


@settings(deadline=None, max_examples=150)
@given(CRONS, ZONES, MOMENTS, st.integers(-14 * 60, 38 * 60))
def test_they_are_neighbours_of_now_in_the_whole_row_of_times(
    cron: str, zone: str, day: datetime, minutes: int
) -> None:
    now = day + timedelta(minutes=minutes)
    row, last = CronSim(cron, (now - timedelta(days=9)).astimezone(ZoneInfo(zone))), None
    for fire in row:
        if fire.astimezone(UTC) > now:
            break
        last = fire.astimezone(UTC)
    assert find_fires(cron, zone, now) == (last, fire.astimezone(UTC))


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
