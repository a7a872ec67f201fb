"""Replay a measured sweep of speculative decoding: the production policy, the table in place of an engine.

A sweep is a CSV file with a row for each combination of a length and other parameters of a draft, such
as a tree's branches: any number of columns, one of them with the tokens per second.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from policies import load_policy
from tuner.core import (
    ConfigError,
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
    TuningError,
    Value,
    setting_key,
)

START = datetime(2000, 1, 1, tzinfo=UTC)
RELATIVE_STDERR = 0.01
"""The assumed standard error of a table of single runs, which has none: our own choice."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """The tokens per second of every setting that was measured."""

    knobs: tuple[Knob, ...]
    throughput_per_s: dict[SettingKey, float]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The settings, in the order of the table."""
        return tuple(dict(key) for key in self.throughput_per_s)

    @property
    def best(self) -> float:
        """The highest tokens per second of any setting."""
        return max(self.throughput_per_s.values())


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The result of a study started at a setting: the measured share, and the shortfall from the best."""

    baseline: Setting
    held: Setting
    points: int
    share: float
    loss: float


def load_sweep(path: Path, length: str, draft: Sequence[str], throughput: str) -> Sweep:
    """Read a sweep: the column of the length, those that describe the draft, and tokens per second.

    Raises:
        ConfigError: it cannot be read, lacks a column, or has a value that is not a number.
    """
    names, throughputs = (length, *draft), dict[SettingKey, float]()
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                setting: Setting = {length: int(row[length])} | {n: float(row[n]) for n in draft}
                throughputs[setting_key(setting)] = float(row[throughput])
    except (OSError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path} is no sweep of speculative decoding: {error!r}",
            hint=f"give a CSV file with the columns {', '.join((*names, throughput))}",
        ) from None
    if not throughputs or min(throughputs.values()) <= 0.0:
        raise ConfigError(
            f"{path} has no rows, or one without tokens per second", hint="give a measured sweep"
        )
    first = dict(next(iter(throughputs)))
    columns: dict[str, tuple[Value, ...]] = {
        name: tuple(sorted({dict(key)[name] for key in throughputs}, key=float)) for name in names
    }
    roles = dict.fromkeys(draft, Role.DRAFT) | {length: Role.SPECULATION_LENGTH}
    knobs = tuple(Knob(n, columns[n], first[n], Part.WORKLOAD, role=roles[n]) for n in names)
    return Sweep(knobs, throughputs)


def replay_sweep(sweep: Sweep, baseline: Setting) -> SweepResult:
    """Run one study of the speculation policy from a setting, and return the setting that it would hold.

    Raises:
        TuningError: the policy left the table, or did not end.
    """
    study, policy = _study(sweep, baseline), load_policy("speculation")
    trials = [_trial(sweep, number, baseline, Phase.BASELINE) for number in (1, 2)]
    for _ in range(len(sweep.throughput_per_s) + 1):
        answer = policy.suggest(Past(study=study, trials=tuple(trials)))
        if isinstance(answer, Done):
            points = len({setting_key(t.setting) for t in trials})
            held = answer.plan.rows[0].setting
            short = 1.0 - sweep.throughput_per_s[setting_key(held)] / sweep.best
            return SweepResult(baseline, held, points, points / len(sweep.settings), short)
        if not isinstance(answer, Try):
            break
        trials.append(_trial(sweep, len(trials) + 1, answer.setting, Phase.TUNING))
    raise TuningError(
        f"the speculation policy came to no end in {len(trials)} windows", hint="report this"
    )


def _study(sweep: Sweep, baseline: Setting) -> Study:
    knobs = tuple(
        Knob(k.name, k.values, baseline[k.name], k.part, role=k.role) for k in sweep.knobs
    )
    return Study(
        id="sweep",
        devices=("replayed",),
        workload="speculative decoding",
        space=Space(knobs, sweep.settings),
        objective=Objective("throughput_per_s", "maximize"),
        policy="speculation",
        terms=Terms(trials=len(sweep.settings)),
        phase=Phase.TUNING,
        created_at=START,
    )


def _trial(sweep: Sweep, number: int, setting: Setting, phase: Phase) -> Trial:
    rate = sweep.throughput_per_s[setting_key(setting)]
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
