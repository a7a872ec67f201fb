"""Replayed sweeps: a made-up one of known shape, and the measured one if it is available."""

from __future__ import annotations

import math
import os
from pathlib import Path
from statistics import median

import pytest

from tests.bench.speculation.sweep import Sweep, load_sweep, replay_sweep
from tests.errors import raised
from tuner.core import ConfigError, Setting, setting_key

DEPTHS, BRANCHES, THRESHOLDS = range(3, 9), (2, 3, 4), (0.01, 0.02, 0.03, 0.05, 0.1)


def tokens_per_s(depth: int, branch: int, threshold: float) -> float:
    """Return a rate like a tree's: more branches accept more and take longer to verify."""
    rate = 0.6 + 0.05 * branch - 1.5 * threshold
    accepted = math.fsum(rate**i for i in range(1, depth + 1))
    nodes = depth * branch * math.sqrt(0.1 / threshold)
    return 100.0 * (1.0 + accepted) / (1.0 + 0.08 * depth + 0.012 * nodes)


def written(folder: Path) -> Path:
    rows = [
        f"{d},{b},{t},{tokens_per_s(d, b, t)}" for d in DEPTHS for b in BRANCHES for t in THRESHOLDS
    ]
    path = folder / "sweep.csv"
    path.write_text("\n".join(["depth,branch,threshold,throughput", *rows]))
    return path


def loaded(path: Path) -> Sweep:
    return load_sweep(path, "depth", ("branch", "threshold"), "throughput")


def starts(sweep: Sweep, every: int) -> list[Setting]:
    return list(sweep.settings)[::every]


@pytest.mark.slow
def test_a_quarter_of_a_tree_sweep_is_enough(tmp_path: Path) -> None:
    sweep = loaded(written(tmp_path))
    results = [replay_sweep(sweep, start) for start in starts(sweep, 11)]
    assert all(result.share <= 0.25 for result in results)
    assert median(result.loss for result in results) <= 0.01
    assert max(result.loss for result in results) <= 0.03


def test_it_is_as_good_as_its_held_setting(tmp_path: Path) -> None:
    sweep = loaded(written(tmp_path))
    replayed = replay_sweep(sweep, sweep.settings[0])
    truth = sweep.throughput_per_s[setting_key(replayed.held)]
    assert replayed.loss == pytest.approx(1.0 - truth / sweep.best)
    assert replayed.share == pytest.approx(replayed.points / 90)


def test_holes_in_the_table_are_never_measured(tmp_path: Path) -> None:
    path = written(tmp_path)
    kept = [line for k, line in enumerate(path.read_text().splitlines()) if k % 3 or not k]
    path.write_text("\n".join(kept))
    sweep = loaded(path)
    assert len(sweep.settings) == 60
    assert replay_sweep(sweep, sweep.settings[5]).points <= 15


@pytest.mark.parametrize(
    "text",
    [
        "",
        "depth,branch,throughput\n3,2,100",
        "depth,branch,threshold,throughput\n3,2,x,100",
        "depth,branch,threshold,throughput\n3,2",
        "depth,branch,threshold,throughput\n3,2,0.1,0",
    ],
)
def test_an_invalid_sweep_is_refused_with_its_columns(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.csv"
    path.write_text(text)
    with raised(ConfigError, "wrong.csv"):
        loaded(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with raised(ConfigError, "none.csv"):
        loaded(tmp_path / "none.csv")


def test_a_quarter_of_a_measured_tree_sweep_yields_a_gain() -> None:
    beside = Path(__file__).parents[3].parent / "shared" / "data" / "speculation"
    folder = Path(os.environ.get("JOULETUNE_SPECULATION", beside))
    path = folder / "dynatree_tree_sweep.csv"
    if not path.is_file():
        pytest.skip("no measured sweep: set JOULETUNE_SPECULATION to its folder")
    sweep = loaded(path)
    assert len(sweep.settings) == 90
    slowest = min(sweep.settings, key=lambda s: sweep.throughput_per_s[setting_key(s)])
    replayed = replay_sweep(sweep, slowest)
    assert replayed.share <= 0.25
    assert replayed.loss < 1.0 - sweep.throughput_per_s[setting_key(slowest)] / sweep.best
