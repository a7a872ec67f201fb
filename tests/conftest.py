from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

# Failing assertions in the contracts should show what they compared, as those in test modules do.
pytest.register_assert_rewrite("tests.contracts")

# As in the tuner: several thread pools on few cores make a fit many times slower.
for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(pool, "1")

# GNU readline, which pytest imports, sets them for its child processes: xdist's workers, 80 columns wide.
for size in ("COLUMNS", "LINES"):
    os.environ.pop(size, None)

# Locks of devices are global on a host, and parallel tests have devices of the same name.
RUN = tempfile.mkdtemp(prefix="jouletune-run-")
os.environ["JOULETUNE_RUN"] = RUN

# The same examples every time, without deadlines: a busy machine is not a failure. Another profile, by
# the option of Hypothesis' own plug-in: pytest --hypothesis-profile=thorough (tests/profiles.py).
for profile, most in (("dev", 15), ("ci", 60), ("thorough", 1000)):
    settings.register_profile(profile, deadline=None, derandomize=True, max_examples=most)
settings.load_profile("ci")

FAILURES = os.environ.get("JOULETUNE_FAILURES")
"""The file of failed tests, one JSON object per line; `.ci/again.py` runs these once more."""


def pytest_configure(config: pytest.Config) -> None:
    """Record failures in the process that collects all reports: with xdist not in a worker."""
    if FAILURES and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failures(Path(FAILURES), config), "failures")


def pytest_unconfigure() -> None:
    shutil.rmtree(RUN, ignore_errors=True)


class _Failures:
    def __init__(self, path: Path, config: pytest.Config) -> None:
        self._path = path
        self._python = [sys.executable, "-m", "pytest", "-m", ""]
        self._python += [
            part for text in config.option.pythonwarnings or () for part in ("-W", text)
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write({"began": os.getpid()})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._write({"ended": int(exitstatus)})

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            environ = {
                name: value
                for name, value in os.environ.items()
                if name.startswith("JOULETUNE_") or name == "PYTHONPATH"
            }
            environ.pop("JOULETUNE_FAILURES", None)
            self._write(
                {
                    "test": report.nodeid,
                    "command": [*self._python, report.nodeid],
                    "environ": environ,
                    "failure": str(report.longrepr)[-4000:],
                }
            )

    def _write(self, line: dict[str, object]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
