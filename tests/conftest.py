from __future__ import annotations

import pytest

# Failing assertions in the contracts should show what they compared, as those in test modules do.
pytest.register_assert_rewrite("tests.contracts")
