"""The line of those that wait: in order, and looked at no further than needed."""

import pytest

from forebay_runtime.scheduling.waiting import OrderedRequests, order_of
from scheduler_play import build_scheduler, names, request


@pytest.mark.parametrize(
    ("leaving", "seen"),
    [
        pytest.param("", "abcd", id="nobody-leaves"),
        pytest.param("a", "abcd", id="the-first"),
        pytest.param("bc", "abcd", id="two-in-a-row"),
        pytest.param("abcd", "abcd", id="all"),
    ],
)
def test_each_in_the_line_is_seen_once_though_the_one_that_is_seen_leaves(
    leaving: str, seen: str
) -> None:
    line = OrderedRequests(order_of("fcfs"))
    for index, name in enumerate("abcd"):
        one = request(name, 1)
        one.arrival_index = index
        line.add(one)
    met = []
    for one in line.in_turn():
        met.append(one)
        if one.request_id in leaving:
            line.remove(one)
    assert "".join(names(met)) == seen
    assert "".join(names(list(line))) == "".join(sorted(set("abcd") - set(leaving)))


class Counted(OrderedRequests):
    """A line that counts how often somebody in it is looked at."""

    num_looks = 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        raise AssertionError("the whole line is walked")

    def in_turn(self):  # type: ignore[no-untyped-def]
        for one in super().in_turn():
            self.num_looks += 1
            yield one


def test_a_step_without_a_seat_looks_at_one_of_thousands() -> None:
    scheduler = build_scheduler(max_num_seqs=1)
    for index in range(5_000):
        scheduler.add(request(str(index), [1]))
    scheduler.schedule()
    scheduler._waiting.__class__ = Counted
    scheduler.schedule()
    assert scheduler._waiting.num_looks == 1  # type: ignore[attr-defined]
