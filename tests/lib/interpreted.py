"""Tests that are marked `interpreted` run in one process that has Triton's interpreter on.

Triton reads TRITON_INTERPRET when a kernel is defined, so the tests of kernels on a CPU need a
process of their own. This pytest plugin starts one for all such tests of a run, beside the others,
and reports each test here as if it had run here. To debug one, run pytest with TRITON_INTERPRET=1
and FOREBAY_KERNELS=triton: then all runs in one process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

_REPORTS = "FOREBAY_INTERPRETED_REPORTS"
"""Where the process of the interpreted tests writes what it reports: set in it alone."""
_OPTIONS = ("-q", "-p", "no:cacheprovider", "--capture=tee-sys")
"""What a process prints that ends in the middle of a test is to be found in its output."""
_LAST_PHASE = "teardown"
_SECONDS_BETWEEN_LOOKS = 0.02


def pytest_configure(config: pytest.Config) -> None:
    if _REPORTS in os.environ:
        os.nice(5)
        config.pluginmanager.register(_Teller(config, Path(os.environ[_REPORTS])))
    elif os.environ.get("TRITON_INTERPRET") != "1":
        config.pluginmanager.register(_Listener(config))


class _Teller:
    """In the process of the interpreted tests: writes down each report, a line each."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config = config
        self._lines = path.open("w", buffering=1)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._lines.write(json.dumps(told, default=str) + "\n")


class _Listener:
    """In the process that was asked to test: has interpreted tests run elsewhere, and reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._process: _Process | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put them last: their process is through with most of them when the others are."""
        items.sort(key=_is_interpreted)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        node_ids = [item.nodeid for item in session.items if _is_interpreted(item)]
        if node_ids and not self._config.option.collectonly:
            self._process = _Process(node_ids, self._config.rootpath)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if self._process is None or not _is_interpreted(item):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for told in self._process.reports(item.nodeid):
            report = self._config.hook.pytest_report_from_serializable(
                config=self._config, data=told
            )
            item.ihook.pytest_runtest_logreport(report=report)
        if not self._process.is_told(item.nodeid):
            item.ihook.pytest_runtest_logreport(report=_lost(item, self._process.output()))
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_sessionfinish(self) -> None:
        if self._process is not None:
            self._process.end()


class _Process:
    """One pytest that runs interpreted tests, and what it has reported so far."""

    def __init__(self, node_ids: list[str], root: Path) -> None:
        self._folder = TemporaryDirectory(prefix="interpreted-")
        folder = Path(self._folder.name)
        (folder / "tests").write_text("\n".join(node_ids))
        (folder / "reports").touch()
        self._lines = (folder / "reports").open()
        self._output = (folder / "output").open("w+")
        self._reports: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._cut = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *_OPTIONS, f"@{folder}/tests"],
            cwd=root,
            env={
                **os.environ,
                "FOREBAY_KERNELS": "triton",
                "TRITON_INTERPRET": "1",
                "PYTHONUNBUFFERED": "1",
                _REPORTS: str(folder / "reports"),
            },
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def reports(self, node_id: str) -> Iterator[dict[str, Any]]:
        """A test's reports, up to its last, or to the end of the process."""
        while not self.is_told(node_id):
            has_ended = self._process.poll() is not None
            self._read()
            if has_ended:
                break
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        yield from self._reports[node_id]

    def is_told(self, node_id: str) -> bool:
        """Whether a test's last report has come."""
        told = self._reports[node_id]
        return bool(told) and told[-1]["when"] == _LAST_PHASE

    def output(self) -> str:
        """The end of what the process wrote."""
        self._output.seek(0)
        return self._output.read()[-4000:]

    def end(self) -> None:
        """Stop it, if it still runs, and remove its files."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()
        self._lines.close()
        self._output.close()
        self._folder.cleanup()

    def _read(self) -> None:
        *lines, self._cut = (self._cut + self._lines.read()).split("\n")
        for line in lines:
            told = json.loads(line)
            self._reports[told["nodeid"]].append(told)


def _is_interpreted(item: pytest.Item) -> bool:
    return item.get_closest_marker("interpreted") is not None


def _lost(item: pytest.Item, output: str) -> pytest.TestReport:
    """The failure of a test whose process ended before it was through."""
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="failed",
        longrepr=f"The process of the interpreted tests ended before this one. It wrote:\n{output}",
        when="call",
    )
