from __future__ import annotations

import pytest
from hypothesis import settings

# Failing assertions in the contracts should show what they compared, as those in test modules do.
pytest.register_assert_rewrite("tests.contracts")

# The same examples every time, and no stopwatch: a loaded machine is no failure.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("repeatable")
