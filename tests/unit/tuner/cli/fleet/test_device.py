"""`jouletune device release --lift` beside a stop of all devices: it names only what it has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from db import open_store
from tests.unit.tuner.cli import worlds
from tuner.cli.app import main
from tuner.wire import Change


@pytest.mark.parametrize(
    ("released", "text"), [(False, "was not released"), (True, "is no longer released")]
)
def test_lifting_during_a_stop_of_all_keeps_a_released_device_apart(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    released: bool,
    text: str,
) -> None:
    worlds.database(tmp_path)
    url = f"sqlite:///{tmp_path / worlds.FILE}"
    store = open_store(url)
    verbs = worlds.operations(store)
    if released:
        verbs.stop_all(Change(), "sim")
    verbs.stop_all(Change())
    store.close()
    monkeypatch.setenv("JOULETUNE_DB", url)
    assert main(["device", "release", "sim", "--lift"]) == 0
    out = capsys.readouterr().out
    assert text in out and "but all devices are stopped" in out
