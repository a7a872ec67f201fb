from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def text_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tiny trained models, trained once."""
    from tests.engines.text.tests.running import make

    return make(tmp_path_factory.mktemp("models"))
