"""The pool of threads: every unit is run once, whoever comes and goes."""

from __future__ import annotations

import os
import threading

import pytest

from forebay_kernels.cpu.thread_pool import ThreadPool


@pytest.mark.parametrize("num_threads", [1, 2, 3, 9])
@pytest.mark.parametrize("num_units", [0, 1, 2, 7, 64])
def test_every_unit_is_run_once_a_run(num_threads: int, num_units: int) -> None:
    _, counts = ThreadPool(num_threads).time_runs(300, num_units, num_reads=20)
    assert counts == [300] * num_units


def test_sessions_that_follow_each_other_find_all_threads_again() -> None:
    pool = ThreadPool(4)
    assert all(pool.time_runs(3, 5, num_reads=5)[1] == [3] * 5 for _ in range(200))


def test_callers_at_the_same_time_get_their_own_results() -> None:
    pool, failures = ThreadPool(3), list[object]()

    def call() -> None:
        for _ in range(50):
            counts = pool.time_runs(20, 6, num_reads=20)[1]
            if counts != [20] * 6:
                failures.append(counts)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert failures == []


def test_pools_come_and_go_beside_each_other() -> None:
    for _ in range(20):
        pools = [ThreadPool(3), ThreadPool(2)]
        assert [pool.time_runs(5, 4, 5)[1] for pool in pools] == [[5] * 4, [5] * 4]


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forks_child_has_threads_of_its_own() -> None:
    pool = ThreadPool(3)
    pool.time_runs(10, 8, num_reads=20)
    child = os.fork()
    if child == 0:
        counts = pool.time_runs(10, 8, num_reads=20)[1]
        os._exit(0 if counts == [10] * 8 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.time_runs(10, 8, num_reads=20)[1] == [10] * 8


def test_no_pool_is_without_threads() -> None:
    with pytest.raises(ValueError, match="0 threads"):
        ThreadPool(0)
