"""The daemons that set the same knobs as jouletune."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.host.symptoms import rivals


@pytest.mark.parametrize(
    "slice", ["sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice"]
)
def test_rival_daemons_at_work_are_named(tmp_path: Path, slice: str) -> None:
    assert list(rivals(tmp_path)) == []
    (tmp_path / slice / "tuned.service").mkdir(parents=True)
    (tmp_path / slice / "cron.service").mkdir()
    (symptom,) = rivals(tmp_path)
    assert "tuned" in symptom.about and symptom.cure == "systemctl disable --now tuned"
