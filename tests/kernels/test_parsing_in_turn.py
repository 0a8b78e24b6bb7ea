"""Threads that compile kernels parse them one after another."""

import ast
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import pytest

from forebay_kernels.gpu.compiling.preparation import one_parser_at_a_time
from forebay_kernels.gpu.softcap import _softcap_kernel as kernel


class Watch:
    """ast.parse that takes its time, and notes how many are in it at once."""

    def __init__(self) -> None:
        self.most = 0
        self._num_inside = 0
        self._lock = Lock()
        self._parse = ast.parse

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            self._num_inside += 1
            self.most = max(self.most, self._num_inside)
        time.sleep(0.02)
        with self._lock:
            self._num_inside -= 1
        return self._parse(*args, **kwargs)


def test_no_two_threads_parse_at_once_and_what_was_there_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Watch()
    parse = type(kernel).parse
    monkeypatch.setattr(ast, "parse", watch)
    with one_parser_at_a_time(), ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(lambda _: kernel.parse(), range(8)))
    assert watch.most == 1
    assert all(isinstance(tree.body[0], ast.FunctionDef) for tree in trees)
    assert type(kernel).parse is parse
