"""The sensors and controls of a machine, found below a root that the test creates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.errors import has_a_next_step
from tests.packages import install, site
from tuner.cli.app import main

__all__ = ["site"]


def test_it_never_fails_and_gives_the_reason_for_a_refusal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOULETUNE_DB", raising=False)
    assert main(["doctor", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    about = [f["about"] for f in findings]
    for name in ("cores", "cpu", "cpu: energy", "NVIDIA GPU (NVML)", "database"):
        assert name in about
    assert all(f["seen"] for f in findings)
    assert main(["doctor"]) == 0
    assert "next: " in capsys.readouterr().out


@pytest.mark.parametrize("options", [["--tuner", "http://h"], ["--token-file", "f"],
                                     ["--fleet", "--bundle", "b.tar.gz"]])  # fmt: skip
def test_an_option_without_effect_is_refused(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *options]) == 2
    assert has_a_next_step(capsys.readouterr().err)


def test_a_database_that_does_not_answer_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--json", "--db", f"sqlite:///{tmp_path / 'none'}"]) == 0
    findings = {f["about"]: f for f in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["database"]["there"] is False
    assert "none" in findings["database"]["seen"]


def test_devices_of_other_packages_are_examined_too(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (
        "from agents.host.symptoms import Symptom\n"
        "def open_fan(rest, *, seed, state_dir, root): ...\n"
        "def examine(root): yield Symptom('fan', False, 'it stands still', 'push it')\n"
    )
    offered = (
        "[jouletune.devices]\nfan = fan:open_fan\nplain = fan:open_fan\nbroken = fan:nothing\n"
    )
    install(site, "fan", f"{offered}[jouletune.diagnoses]\nfan = fan:examine\n", source)
    assert main(["doctor", "--json"]) == 0
    findings = {f["about"]: f for f in json.loads(capsys.readouterr().out)["findings"]}
    assert (findings["fan"]["seen"], findings["fan"]["hint"]) == ("it stands still", "push it")
    assert findings["plain"]["there"] and not findings["broken"]["there"]
    assert "cannot load" in findings["broken"]["seen"]
