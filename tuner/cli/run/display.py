"""The progress of a run: one live line on a terminal, a log elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tuner.core import Mode, Phase, Verdict
from tuner.presentation.figures import change, duration, shown
from tuner.presentation.texts import grown, line, requested_metrics
from tuner.study.confirm import CONFIRM_MOST, CONFIRM_WINDOWS
from tuner.wire import StudyView, TrialView

RESTING = (Phase.HOLDING, Phase.PAUSED, Phase.STOPPED)


class Lines:
    """One line for each ended trial and each phase: for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: dict[str, int] = {}
        self._phase: dict[str, Phase] = {}
        self._best: dict[str, str] = {}

    def update(self, title: str, view: StudyView, trials: Sequence[TrialView]) -> None:
        """Print the trials and phases since the last update."""
        if view.id not in self._shown:
            self.say(title)
        ended = [t for t in trials if t.state.final]
        new = ended[self._shown.get(view.id, 0) :]
        self._shown[view.id] = len(ended)
        for trial in new:
            self._enter(view.id, trial.phase)
            self.say(f"    {line(trial, view)}")
        if new and (best := best_so_far(view)) != self._best.get(view.id):
            self._best[view.id] = best
            self.say(f"    {best}")
        if view.phase in RESTING:
            self._enter(view.id, view.phase)

    def _enter(self, study: str, phase: Phase) -> None:
        """Print a phase unless it was the last one printed."""
        if self._phase.get(study) is not phase:
            self._phase[study] = phase
            self.say(f"  {phase}")

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, soft_wrap=True)

    def close(self) -> None:
        """Do nothing: lines leave no state in the terminal."""


class LiveLine:
    """One line, redrawn in place: phase, trial, best so far, time left."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def update(self, title: str, view: StudyView, trials: Sequence[TrialView]) -> None:
        """Redraw the line."""
        self._live.start()
        self._live.update(Text(progress(title, view, trials), no_wrap=True), refresh=True)

    def say(self, text: str) -> None:
        """Print a line above it."""
        self._live.console.print(text, soft_wrap=True)

    def close(self) -> None:
        """Remove the line."""
        self._live.stop()


Display = Lines | LiveLine
"""Shows the progress of studies; after `close` the next update opens it again."""


def open_display(console: Console) -> Display:
    """Return the display for a terminal or for a log."""
    return LiveLine(console) if console.is_terminal else Lines(console)


def progress(title: str, view: StudyView, trials: Sequence[TrialView]) -> str:
    """Return the progress of a study in one line; a narrow terminal cuts off its end."""
    tried = sum(t.phase is Phase.TUNING for t in trials)
    most = f" of ≤ {view.terms.trials}" if view.terms.mode is Mode.SEARCH else ""
    parts = [f"{view.phase}, trial {tried}{most}", best_in_short(view)]
    if (left := time_left(view, trials)) is not None:
        parts.append(f"{duration(left[0])} to {duration(left[1])} left")
    if view.phase is Phase.PAUSED:
        parts.append(f"continue with `jouletune study resume {view.id}`")
    return " | ".join(filter(None, [*parts, title]))


def time_left(view: StudyView, trials: Sequence[TrialView]) -> tuple[float, float] | None:
    """Return the shortest and the longest time to the end of a search in seconds; None while unknown.

    A trial takes as long as the mean trial so far. A search may end after any trial; then its result and
    the baseline are confirmed, with at least CONFIRM_WINDOWS of each, and at most CONFIRM_MOST in total.
    """
    ended = [t for t in trials if t.ended_at is not None]
    if view.terms.mode is not Mode.SEARCH or view.phase in RESTING or not ended:
        return None
    started_at, last = (
        trials[0].started_at,
        max(t.ended_at for t in ended if t.ended_at is not None),
    )
    each = (last - started_at).total_seconds() / len(ended)
    confirmed = sum(t.phase is Phase.CONFIRMING for t in ended)
    tried = sum(t.phase is Phase.TUNING for t in trials)
    searching = view.phase in (Phase.BASELINE, Phase.TUNING)
    least, most = max(1, 2 * CONFIRM_WINDOWS - confirmed), max(1, CONFIRM_MOST - confirmed)
    return least * each, (most + (max(0, view.terms.trials - tried) if searching else 0)) * each


def best_in_short(view: StudyView) -> str:
    """Return the change of the objective at the best setting so far; empty if there is no such setting."""
    by = _changed(view)
    return f"best {by} {requested_metrics(view)[0]}" if by else ""


def best_so_far(view: StudyView) -> str:
    """Return the best setting so far, compared with the baseline."""
    metric, best = requested_metrics(view)[0], view.best
    if best is None or best.verdict is not Verdict.FEASIBLE:
        return "no setting is proven to keep every limit yet"
    by = _changed(view)
    if not by:
        return "no measurement to compare yet"
    if best.setting == view.baseline.setting:
        return f"best so far {shown(metric, best.metrics, view.quantities)}, the baseline"
    return (
        f"best so far {shown(metric, best.metrics, view.quantities)} "
        f"({by} against the baseline) at {change(best.setting, view.baseline.setting)}"
    )


def _changed(view: StudyView) -> str:
    """Return the change of the objective at the best feasible setting; empty without one."""
    metric, best = requested_metrics(view)[0], view.best
    if best is None or best.verdict is not Verdict.FEASIBLE:
        return ""
    base, estimate = view.baseline.metrics.get(metric), best.metrics.get(metric)
    if base is None or estimate is None:
        return ""
    return grown(replace(base, stderr=0.0), replace(estimate, stderr=0.0), metric, view.quantities)
