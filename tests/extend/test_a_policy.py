"""A policy of your own: one class (`frugal.py` beside this), and an entry point that names it.

In the `pyproject.toml` of your package:

    [project.entry-points."jouletune.policies"]
    frugal = "frugal:Frugal"

Installed beside the tuner it is chosen with `--policy frugal`. It is a pure function of the past, which
the contract checks. `test_a_signal.py` tests that its plan is followed as the signal changes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from policies import load_policy
from tests.builders import asked, setting
from tests.contracts.policy import PolicyContract
from tests.extend import frugal
from tests.integration.stage import stage
from tests.packages import install
from tuner.core import Policy

ENTRY_POINTS = "[jouletune.policies]\nfrugal = frugal:Frugal\n"


@pytest.fixture
def package(site: Path) -> Path:
    install(site, "frugal", ENTRY_POINTS, Path(frugal.__file__).read_text())
    return site


class TestFrugal(PolicyContract):
    @pytest.fixture
    def policy(self, package: Path) -> Policy:
        return load_policy("frugal")

    def test_its_plan_follows_a_signal_of_the_package(self, policy: Policy) -> None:
        _, done = self.play(policy, asked(11))
        clean, dirty = (
            done.plan.row({"renewable_share": 0.9}),
            done.plan.row({"renewable_share": 0.2}),
        )
        assert done.plan.rows[clean].setting == setting()
        assert done.plan.rows[dirty].setting != setting()


def test_it_decides_the_settings_that_a_tuner_tries(package: Path) -> None:
    with stage(package) as played:
        played.start_tuner()
        played.start_agent("simulated:orin")
        study = played.create(
            policy="frugal",
            objective="energy_j",
            terms={"trials": 2, "window_s": 5.0, "max_window_s": 10.0},
        )
        played.await_phase(study, "holding")
        tuning = [t["why"] for t in played.trials(study) if t["phase"] == "tuning"]
    assert tuning == ["the next one in order"] * 2
