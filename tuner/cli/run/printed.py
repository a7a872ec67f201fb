"""The final report of a run, study by study, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from tuner.cli.run.results import Result, StudyResult
from tuner.cli.study.printed import print_outcome
from tuner.core import by_reason, render_setting, setting_key
from tuner.presentation.figures import change, percent
from tuner.presentation.true_score import Score


def print_report(console: Console, result: Result) -> None:
    """Print the saving of a run's study, its cost, and their uncertainty."""
    print_outcome(console, result.main, result.board, truth(result), unavailable(result))


def truth(result: Result) -> Iterator[str]:
    """Yield the true values and the control study's result, if they exist."""
    if result.main.score is not None:
        yield f"truth     {true_worth(result.main.score)}"
    if result.control is not None:
        yield f"control   {_control(result.control)}"


def unavailable(result: Result) -> Iterator[str]:
    """Yield the metrics and knobs that are not available, one line per reason."""
    for names, why in by_reason(dict(sorted(result.cannot.items()))):
        yield f"unavailable  {names}: {why}"


def true_worth(worth: Score) -> str:
    """Return the saving of the chosen setting by the device's true values."""
    effect = "keeps" if worth.feasible else "BREAKS"
    if not worth.baseline_feasible:
        # `score` returns the baseline as the oracle if no setting keeps the limits.
        if setting_key(worth.oracle.setting) == setting_key(worth.baseline.setting):
            return f"no setting meets the limits here; the choice {_saved(worth.saving_percent)}"
        best = render_setting(worth.oracle.setting)
        return (
            f"the baseline truly breaks a limit; the choice {effect} them and "
            f"{_saved(worth.saving_percent)}; the best that meets them is {best}"
        )
    if worth.captured is None:
        return f"no saving is possible here; the choice truly {effect} the limits"
    return (
        f"{worth.saving_percent:.1f} % saved, {percent(worth.captured)} of the best possible "
        f"({render_setting(worth.oracle.setting)}); it truly {effect} the limits"
    )


def _saved(share: float) -> str:
    """Return a saving in percent as text; a negative one is a cost."""
    return f"saves {share:.1f} %" if share >= 0.0 else f"costs {-share:.1f} % more"


def _control(control: StudyResult) -> str:
    """Return the control study's result as text."""
    report = control.report
    name = f"{report.study.policy} with as many trials"
    at = change(control.held, report.study.baseline.setting)
    return f"{name}: {true_worth(control.score)}, at {at}" if control.score else f"{name}: {at}"


def next_steps(results: Sequence[Result], reach: str) -> Iterator[str]:
    """Yield the next commands. `reach` is the options that name the database, with a leading blank."""
    for result in results:
        yield f"jouletune trial list {result.main.report.study.id}{reach}"
    yield f"jouletune history{reach}"
    yield f"jouletune history --format parquet --output trials.parquet{reach}"
