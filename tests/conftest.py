from __future__ import annotations

import os
import shutil
import tempfile

import pytest
from hypothesis import settings

# Failing assertions in the contracts should show what they compared, as those in test modules do.
pytest.register_assert_rewrite("tests.contracts")

# As the tuner does: several thread pools on few cores make a fit many times slower.
for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(pool, "1")

# Locks of devices are the host's: tests beside each other have devices of one name.
RUN = tempfile.mkdtemp(prefix="jouletune-run-")
os.environ["JOULETUNE_RUN"] = RUN


def pytest_unconfigure() -> None:
    shutil.rmtree(RUN, ignore_errors=True)


# The same examples every time, and no stopwatch: a loaded machine is no failure.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("repeatable")
