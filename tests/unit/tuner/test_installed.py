"""Names that several packages provide, and the reported release, commit, schema and protocol."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from agents.devices.catalogue import known_truth, open_device
from agents.workloads import open_workload
from db import SCHEMA
from policies import load_policy
from tests.builders import Time
from tests.errors import raised
from tests.packages import install, site
from tuner import installed
from tuner.cli import app
from tuner.core import InvalidInput
from tuner.errors import ConfigError
from tuner.wire import PROTOCOL

SOURCE = """
def open_toaster(rest, **around):
    return ("toaster", rest, sorted(around))

class Guess:
    def suggest(self, past):
        raise NotImplementedError

class Demanding(Guess):
    def __init__(self, seed):
        self.seed = seed

class Silent:
    pass
"""


Choose = Callable[[str], object]


def open_kind(kind: str) -> object:
    return open_device(f"{kind}:two", seed=0, state_dir=None)


def open_work(kind: str) -> object:
    return open_workload(f"{kind}:two", seed=0, state_dir=Path(), clock=Time())


CHOICES: dict[str, tuple[Choose, str, str]] = {
    "devices": (open_kind, "cpu", "agents.devices.cpu.device:open_cpu"),
    "workloads": (open_work, "simulated", "agents.workloads.simulated:open_simulated_inference"),
    "policies": (load_policy, "sobol", "policies.sobol:Sobol"),
}
every = pytest.mark.parametrize("group", list(CHOICES))


def test_an_entry_point_of_a_package_is_opened_by_its_name(site: Path) -> None:
    install(
        site,
        "toasting",
        "[jouletune.devices]\ntoaster = toasting:open_toaster\n"
        "[jouletune.workloads]\ntoast = toasting:open_toaster\n"
        "[jouletune.policies]\nguess = toasting:Guess\n",
        SOURCE,
    )
    assert open_kind("toaster") == ("toaster", "two", ["root", "seed", "state_dir"])
    assert open_work("toast") == ("toaster", "toast:two", ["clock", "seed", "state_dir"])
    assert type(load_policy("guess")).__name__ == "Guess"
    assert known_truth("toaster:two") is None


@every
def test_an_unknown_name_is_refused_with_those_of_packages_too(site: Path, group: str) -> None:
    install(site, "toasting", f"[jouletune.{group}]\ntoaster = toasting:open_toaster\n", SOURCE)
    with pytest.raises(InvalidInput) as caught:
        CHOICES[group][0]("toster")
    assert "toaster" in caught.value.hint
    assert "toasting" not in sys.modules


@every
def test_built_in_names_cannot_be_overridden(site: Path, group: str) -> None:
    choose, name, target = CHOICES[group]
    install(site, "toasting", f"[jouletune.{group}]\n{name} = toasting:Guess\n", SOURCE)
    with pytest.raises(InvalidInput) as caught:
        choose(name)
    assert f"{name} = {target}, which is built in" in caught.value.message
    assert f"{name} = toasting:Guess, of the package toasting 1.0" in caught.value.message


def test_two_packages_that_offer_one_name_are_both_named(site: Path) -> None:
    for package in ("toasting", "grilling"):
        install(site, package, f"[jouletune.policies]\nguess = {package}:Guess\n", SOURCE)
    with raised(InvalidInput, "1.0") as caught:
        load_policy("guess")
    assert "grilling 1.0" in caught.value.message


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import a_module_of_another_world\n", "ModuleNotFoundError"),
        ("raise RuntimeError('no licence')\n", "RuntimeError: no licence"),
        ("", "AttributeError"),
    ],
)
@every
def test_a_package_that_does_not_import_is_named_with_its_module(
    site: Path, group: str, source: str, why: str
) -> None:
    install(site, "toasting", f"[jouletune.{group}]\ntoaster = toasting:open_it\n", source)
    with pytest.raises(InvalidInput) as caught:
        CHOICES[group][0]("toaster")
    assert "toaster = toasting:open_it, of the package toasting 1.0" in caught.value.message
    assert why in caught.value.message


@pytest.mark.parametrize(
    ("offered", "why"),
    [
        ("Demanding", "cannot be created: TypeError: .*'seed'"),
        ("Silent", r"has no method suggest\(past\)"),
    ],
)
def test_an_entry_point_that_is_not_a_policy_is_refused_with_the_reason(
    site: Path, offered: str, why: str
) -> None:
    install(site, "toasting", f"[jouletune.policies]\nguess = toasting:{offered}\n", SOURCE)
    with pytest.raises(InvalidInput, match=f"policy 'guess' {why}"):
        load_policy("guess")


__all__ = ["site"]

CHECKOUT = Path(__file__).parents[3]


def test_it_prints_release_commit_schema_and_protocol(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = tmp_path / "commit.txt"
    noted.write_text("0123456789ab\n")
    monkeypatch.setattr(installed, "COMMIT", noted)
    assert app.main(["--version"]) == 0
    details = f"commit 0123456789ab, database schema {SCHEMA}, wire protocol {PROTOCOL}"
    assert capsys.readouterr().out == f"jouletune {version('jouletune')} ({details})\n"


def test_a_checkout_reports_its_commit() -> None:
    if not (CHECKOUT / ".git").exists():
        pytest.skip("this is no checkout")
    command = ["git", "-C", str(CHECKOUT), "rev-parse", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert head.startswith(installed.commit().removesuffix("-dirty"))
    assert installed.commit()


def test_another_distribution_with_a_package_of_our_name_stops_the_start(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed.check_names()
    install(site, "robots", "", "")
    (site / "robots-1.0.dist-info" / "top_level.txt").write_text("agents\n")
    with pytest.raises(ConfigError, match="`agents`"):
        installed.check_names()
    every = (["agent", "serve"], ["tuner", "serve"], ["run"])
    for command in (c for c in every if app.too_old(c, sys.version_info[:2]) is None):
        assert app.main([*command, "--json"]) == 2
        problem = json.loads(capsys.readouterr().err)
        assert "`agents`" in problem["message"] and "robots" in problem["message"]
        assert "a separate environment" in problem["hint"]
