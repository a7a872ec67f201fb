"""What one sees while a run is under way: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from tuner.cli.output import TABLE_WIDTH, table
from tuner.core import Mode, Phase, TrialState, Verdict
from tuner.presentation.figures import change, figure
from tuner.presentation.texts import asked_metrics, grown, line, row
from tuner.wire import StudyView, TrialView

ROWS = 8
RESTING = (Phase.HOLDING, Phase.PAUSED, Phase.STOPPED)


class Display(Protocol):
    """Shows how studies go on."""

    def update(self, title: str, view: StudyView, trials: Sequence[TrialView]) -> None:
        """Show a study as it stands now."""
        ...

    def say(self, text: str) -> None:
        """Show a line that stays."""
        ...

    def close(self) -> None:
        """Leave the terminal as it should be; the next update opens it again."""
        ...


def open_display(console: Console) -> Display:
    """Return the display that suits where the output goes."""
    return LiveTable(console) if console.is_terminal else Lines(console)


class Lines:
    """One line per ended trial and per phase: for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: dict[str, int] = {}
        self._phase: dict[str, Phase] = {}
        self._best: dict[str, str] = {}

    def update(self, title: str, view: StudyView, trials: Sequence[TrialView]) -> None:
        """Print what is new since the last look."""
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
            self._enter(view.id, view.phase, f": {view.phase_why}")

    def _enter(self, study: str, phase: Phase, why: str = "") -> None:
        if self._phase.get(study) is not phase:
            self._phase[study] = phase
            self.say(f"  {phase}{why}")

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, soft_wrap=True)

    def close(self) -> None:
        """Do nothing: lines need no end."""


class LiveTable:
    """The last trials, what is being tried, and the best so far, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def update(self, title: str, view: StudyView, trials: Sequence[TrialView]) -> None:
        """Redraw."""
        self._live.start()
        wide = self._live.console.width >= TABLE_WIDTH
        self._live.update(picture(title, view, trials, wide=wide), refresh=True)

    def say(self, text: str) -> None:
        """Print a line above the table."""
        self._live.console.print(text)

    def close(self) -> None:
        """Take the table away."""
        self._live.stop()


def picture(
    title: str, view: StudyView, trials: Sequence[TrialView], *, wide: bool
) -> RenderableType:
    """Return the live table of one study; lines where there is no room for a table."""
    metrics = asked_metrics(view)
    for extra in ("energy_j",):
        if extra not in metrics and extra in view.baseline.metrics:
            metrics.append(extra)
    columns = (">#", "phase", "state", "verdict", *(f">{m}" for m in metrics), "setting", "remark")
    rows = [row(t, view, metrics) for t in trials[-ROWS:]]
    lines = Text("\n".join(f"  {line(t, view)}" for t in trials[-ROWS:]))
    return Group(
        Text(title, style="bold"),
        table(*columns, rows=rows) if wide else lines,
        Text(status(view, trials)),
        Text(best_so_far(view), style="green"),
    )


def status(view: StudyView, trials: Sequence[TrialView]) -> str:
    """Return what is going on: the phase, how many trials, and what is being tried."""
    tried = sum(t.phase is Phase.TUNING for t in trials)
    of = f" of {view.terms.trials}" if view.terms.mode is Mode.SEARCH else ""
    text = f"{view.phase}, trial {tried}{of}"
    if view.phase is Phase.PAUSED:
        return f"{text}; continue with `jouletune study resume {view.id}`"
    running = [t for t in trials if t.state is TrialState.RUNNING]
    if running:
        text += f": trying {change(running[0].setting, view.baseline.setting)} ({running[0].why})"
    if len(running) > 1:
        text += f", and {len(running) - 1} more on other devices"
    return text


def best_so_far(view: StudyView) -> str:
    """Return the best so far against the baseline."""
    metric, best = asked_metrics(view)[0], view.best
    if best is None or best.verdict is not Verdict.FEASIBLE:
        return "no setting is proven to meet every limit in all of its windows yet"
    base, found = view.baseline.metrics.get(metric), best.metrics.get(metric)
    if base is None or found is None:
        return "nothing to compare yet"
    by = grown(replace(base, stderr=0.0), replace(found, stderr=0.0), metric, view.quantities)
    return (
        f"best so far {figure(metric, found.mean, found.stderr, view.quantities)} "
        f"({by} against the baseline) at {change(best.setting, view.baseline.setting)}"
    )
