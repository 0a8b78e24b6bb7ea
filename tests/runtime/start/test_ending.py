"""A signal ends a command with a sentence, whatever becomes of it on its way out."""

import os
import signal

import pytest

from forebay_runtime.ending import run_until_ended


def ask_for_the_end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_the_end_is_told_also_where_it_comes_out_as_another_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> int:
        try:
            ask_for_the_end()
        except BaseException as error:
            raise ValueError("a library cannot tell what was raised within it") from error
        return 0

    assert run_until_ended("it", fail) == 143
    assert capsys.readouterr().err == "it: ended by SIGTERM; nothing was left behind\n"


def test_a_second_signal_does_not_disturb_the_removal() -> None:
    removed = []

    def run() -> int:
        try:
            ask_for_the_end()
        finally:
            ask_for_the_end()
            removed.append(True)
        return 0

    assert run_until_ended("it", run) == 143
    assert removed


def test_what_fails_by_itself_still_does() -> None:
    with pytest.raises(ValueError, match="its own"):
        run_until_ended("it", lambda: int("its own"))
    assert run_until_ended("it", lambda: 2) == 2


def test_handlers_are_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    run_until_ended("it", lambda: 0)
    assert signal.getsignal(signal.SIGTERM) == before
