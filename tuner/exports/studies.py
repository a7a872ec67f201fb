"""The exported data of a study, for every target."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.core import Knob
from tuner.wire import StudyReport, StudyView, TrialView

STUDY = "jouletune.study"
TRIAL = "jouletune.trial"
"""The names of the tags with the ids of a study and a trial, by which exports find existing data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedStudy:
    """A study with its trials, and the knobs of its first device; empty if that device was removed."""

    report: StudyReport
    trials: tuple[TrialView, ...]
    knobs: tuple[Knob, ...] = ()

    @property
    def view(self) -> StudyView:
        """The present state of the study."""
        return self.report.study

    @property
    def ended(self) -> Iterator[TrialView]:
        """The trials that have ended; a later export adds the others."""
        return (trial for trial in self.trials if trial.state.final)

    @property
    def objective(self) -> tuple[str, str]:
        """The goal, `minimize` or `maximize`, and the metric."""
        goal, _, metric = self.view.objective.partition(" ")
        return goal, metric


ExportCount = Counter[str]
"""The numbers of trials that an export `added`, `changed`, or left as they were (`known`)."""


def trial_id(trial: TrialView) -> str:
    """Return a trial's id across studies: `STUDY:NUMBER`."""
    return f"{trial.study}:{trial.number}"


def numbers(trial: TrialView) -> dict[str, float]:
    """Return each metric's mean, its standard error, and its bounds, as far as they are finite."""
    finite: dict[str, float] = {}
    for name, estimate in trial.metrics.items():
        parts = {"": estimate.mean, ".stderr": estimate.stderr}
        parts |= {".low": estimate.low, ".high": estimate.high}
        finite |= {f"{name}{part}": v for part, v in parts.items() if math.isfinite(v)}
    return finite


def circumstances(trial: TrialView) -> dict[str, str]:
    """Return further data of a trial as text; the verdict is by the limits now in force."""
    about = {
        "phase": str(trial.phase),
        "state": str(trial.state),
        "verdict": str(trial.verdict or ""),
        "cut_short": "yes" if trial.censored else "",
        "why": trial.why,
        "reason": trial.reason,
        "throttled": ", ".join(trial.throttled),
        **{f"load.{name}": f"{value:g}" for name, value in trial.context.items()},
    }
    return {f"jouletune.{name}": text for name, text in about.items() if text}


def shown_url(url: str) -> str:
    """Return a URL without its password, for messages."""
    return re.sub(r"(://[^/@:]*):[^@]*@", r"\1@", url)


def first_line(error: Exception) -> str:
    """Return the first line of an error, or its type without a text."""
    return (str(error).splitlines() or [type(error).__name__])[0]
