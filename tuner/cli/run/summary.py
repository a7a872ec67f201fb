"""The last lines of a run: saving, limits, cost and the next step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from rich.console import Console

from tuner.cli.output import write_text
from tuner.cli.run.results import Result, Score, StudyResult
from tuner.cli.study.report import print_outcome
from tuner.core import Verdict, by_reason, render_setting, setting_key
from tuner.presentation.documents import ReportedStudy, html
from tuner.presentation.figures import change, duration, figure, joined, percent
from tuner.presentation.texts import improved, requested_metrics, sized

PAGE = "report.html"


def write_page(results: Sequence[Result], state_dir: Path, at: datetime) -> Path:
    """Write the report of a run as one HTML page.

    Raises:
        ConfigError: Jinja or matplotlib is not installed.
        StoreError: the page cannot be written.
    """
    studies = [ReportedStudy(outcome=r.main, front=r.main.front) for r in results]
    page = state_dir / PAGE
    write_text(page, html(studies, (), "The last run", at))
    return page


def summary(
    results: Sequence[Result], page: Path | None, reach: str, keeps: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield the label and the text of each line.

    `reach` is the option for the run's database, `keeps` the tuner whose services hold the result
    (empty if none does).
    """
    if not results:
        return
    yield "saved", "; ".join(f"{_saving(one)} on {_devices(one)}" for one in results)
    yield "limits", "; ".join(_judged_limits(results))
    yield "cost", "; ".join(f"{_cost(one)} on {_devices(one)}" for one in results)
    command = f"jouletune report{reach} --format html --output report.html"
    yield "report", f"{page}" if page is not None else f"`{command}`"
    yield "next", f"`jouletune status --tuner {keeps}`" if keeps else _next(results)


def _devices(result: Result) -> str:
    """Return the devices of a study as text."""
    return joined(result.main.report.study.devices)


def _saving(result: Result) -> str:
    """Return the saving of the chosen setting in the objective."""
    report = result.main.report
    gain = improved(report)
    if not result.main.tuned:
        return "not tuned"
    if not result.main.won or gain is None:
        return "nothing"
    metric = requested_metrics(report.study)[0]
    text = f"{sized(gain, metric, report.study.quantities)} {metric}"
    return text if gain.amount.mean >= 0.0 else f"-{text}"


def _judged_limits(results: Sequence[Result]) -> Iterator[str]:
    """Yield whether the best settings keep the limits, and how many windows of exploring broke one."""
    if not any(result.main.report.study.constraints for result in results):
        yield "none were set"
        return
    if not any(result.main.tuned for result in results):
        yield "not compared: nothing was tuned"
        return
    open_limits = []
    for result in results:
        report = result.main.report
        if not result.main.tuned:
            continue
        held = (report.best if result.main.won else None) or report.baseline
        for limit in report.study.limits:
            verdict = limit.verdict(held.metrics.get(limit.metric))
            if verdict is not Verdict.FEASIBLE:
                state = "BROKEN" if verdict is Verdict.INFEASIBLE else "not proven"
                open_limits.append(f"{limit.metric} {state} on {_devices(result)}")
    yield joined(open_limits, "all met by the best settings")
    tried = [result.main.report.study.violations for result in results]
    broken, windows = sum(v.broken for v in tried), sum(v.tried for v in tried)
    yield f"{broken} of {windows} windows broke one while exploring"


def _next(results: Sequence[Result]) -> str:
    """Return the next step: tune an own service first, then hold its result."""
    own = [one for one in results if one.job.workload not in ("", "reference")]
    if not own:
        return "`jouletune doctor`, then `jouletune run --device …` with your own service"
    if not any(one.main.tuned for one in own):
        return "remove the reason why nothing was tuned, and repeat the run"
    if not any(one.main.won for one in own):
        return "more knobs, or looser limits: `jouletune run --help`"
    return "set it yourself, or repeat the run with --keep --tuner URL: the services confirm and hold it"


def _cost(result: Result) -> str:
    """Return the duration and the energy of exploring as text."""
    bill = result.main.report.bill
    energy = "" if bill.explored_j is None else f" and {figure('energy_j', bill.explored_j)}"
    return f"{duration(bill.seconds)}{energy}"


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
