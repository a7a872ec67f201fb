from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.folder import Folder
from tests.integration.stage import Stage, stage


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as playing:
        yield playing


@pytest.fixture
def served(played: Stage) -> Stage:
    """Return a stage whose tuner serves."""
    played.start_tuner()
    return played


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    opened = Folder(tmp_path)
    yield opened
    opened.close()
