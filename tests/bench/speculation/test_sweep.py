"""Sweeps of drafts shaped like trees, replayed: the production policy, a table in place of an engine.

One sweep is made up, of known shape; the measured one is replayed if it is available.
"""

from __future__ import annotations

import csv
import json
import math
import os
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import pytest

from policies import load_policy
from tuner.core import (
    Done,
    Estimate,
    Knob,
    Measurement,
    Objective,
    Origin,
    Part,
    Past,
    Phase,
    Role,
    Setting,
    SettingKey,
    Space,
    Study,
    Terms,
    Trial,
    TrialState,
    Try,
    setting_key,
)

START = datetime(2000, 1, 1, tzinfo=UTC)
RELATIVE_STDERR = 0.01
"""The assumed standard error of a table of single runs, which has none: our own choice."""
DEPTHS, BRANCHES, THRESHOLDS = range(3, 9), (2, 3, 4), (0.01, 0.02, 0.03, 0.05, 0.1)
ROLES = {"depth": Role.SPECULATION_LENGTH, "branch": Role.DRAFT, "threshold": Role.DRAFT}

Sweep = dict[SettingKey, float]
"""The tokens per second of every setting that was measured."""


def made_up() -> Sweep:
    return {
        setting_key({"depth": d, "branch": b, "threshold": t}): tokens_per_s(d, b, t)
        for d in DEPTHS
        for b in BRANCHES
        for t in THRESHOLDS
    }


def tokens_per_s(depth: int, branch: int, threshold: float) -> float:
    """Return a rate like a tree's: more branches accept more and take longer to verify."""
    rate = 0.6 + 0.05 * branch - 1.5 * threshold
    accepted = math.fsum(rate**i for i in range(1, depth + 1))
    nodes = depth * branch * math.sqrt(0.1 / threshold)
    return 100.0 * (1.0 + accepted) / (1.0 + 0.08 * depth + 0.012 * nodes)


def replayed(sweep: Sweep, baseline: Setting) -> tuple[float, float]:
    """Run a study from a setting; return the measured share, and the shortfall of what it would hold."""
    columns = {n: sorted({dict(key)[n] for key in sweep}) for n in ROLES}
    knobs = (
        Knob(n, tuple(column), baseline[n], Part.WORKLOAD, role=ROLES[n])
        for n, column in columns.items()
    )
    study = Study(
        id="sweep",
        devices=("replayed",),
        workload="speculative decoding",
        space=Space(tuple(knobs), tuple(map(dict, sweep))),
        objective=Objective("throughput_per_s", "maximize"),
        policy="speculation",
        terms=Terms(trials=len(sweep)),
        phase=Phase.TUNING,
        created_at=START,
    )
    policy = load_policy("speculation")
    trials = [trial(sweep, number, baseline, Phase.BASELINE) for number in (1, 2)]
    while isinstance(answer := policy.suggest(Past(study=study, trials=tuple(trials))), Try):
        assert len(trials) <= len(sweep), "it comes to no end"
        trials.append(trial(sweep, len(trials) + 1, answer.setting, Phase.TUNING))
    assert isinstance(answer, Done)
    held = sweep[setting_key(answer.plan.rows[0].setting)]
    points = {setting_key(t.setting) for t in trials}
    return len(points) / len(sweep), 1.0 - held / max(sweep.values())


def trial(sweep: Sweep, number: int, setting: Setting, phase: Phase) -> Trial:
    rate = sweep[setting_key(setting)]  # a setting outside the table is an error
    shown = Estimate.of_mean(rate, RELATIVE_STDERR * rate, origin=Origin.REPLAYED)
    return Trial(
        number=number,
        setting=setting,
        phase=phase,
        state=TrialState.COMPLETED,
        started_at=START,
        ended_at=START,
        measurement=Measurement(
            estimates={"throughput_per_s": shown}, started_at=START, seconds=10.0
        ),
    )


@pytest.mark.slow
def test_a_quarter_of_a_tree_sweep_is_enough() -> None:
    sweep = made_up()
    results = [replayed(sweep, dict(start)) for start in list(sweep)[::22]]
    assert all(share <= 0.25 for share, _ in results)
    assert median(loss for _, loss in results) <= 0.01
    assert max(loss for _, loss in results) <= 0.03


def test_holes_in_the_table_are_never_measured() -> None:
    sweep = dict(kept for k, kept in enumerate(made_up().items(), 1) if k % 3)
    assert len(sweep) == 60
    share, _ = replayed(sweep, dict(list(sweep)[5]))
    assert share <= 0.25


@pytest.mark.slow
def test_a_quarter_of_a_measured_tree_sweep_yields_a_gain() -> None:
    beside = Path(__file__).parents[3].parent / "shared" / "data" / "speculation"
    folder = Path(os.environ.get("JOULETUNE_SPECULATION", beside))
    path = folder / "dynatree_tree_sweep.csv"
    if not path.is_file():
        pytest.skip("no measured sweep: set JOULETUNE_SPECULATION to its folder")
    with path.open(encoding="utf-8", newline="") as file:
        sweep = {
            setting_key({n: json.loads(row[n]) for n in ROLES}): float(row["throughput"])
            for row in csv.DictReader(file)
        }
    assert len(sweep) == 90
    slowest = min(sweep, key=lambda key: sweep[key])
    share, loss = replayed(sweep, dict(slowest))
    assert share <= 0.25
    assert loss < 1.0 - sweep[slowest] / max(sweep.values())
