from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.stage import Stage, stage


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as playing:
        yield playing
