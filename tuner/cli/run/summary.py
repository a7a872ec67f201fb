"""The last lines of a run: saving, limits, cost and the next step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from tuner.cli.output import write_text
from tuner.cli.run.results import Result
from tuner.core import Verdict
from tuner.presentation.documents import ReportedStudy, html
from tuner.presentation.figures import duration, figure, joined
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
    yield "saved", "; ".join(f"{_saved(one)} on {_device(one)}" for one in results)
    yield "limits", "; ".join(_limits(results))
    yield "cost", "; ".join(f"{_cost(one)} on {_device(one)}" for one in results)
    command = f"jouletune report{reach} --format html --output report.html"
    yield "report", f"{page}" if page is not None else f"`{command}`"
    yield "next", f"`jouletune status --tuner {keeps}`" if keeps else _next(results)


def _device(result: Result) -> str:
    """Return the devices of a study as text."""
    return joined(result.main.report.study.devices)


def _saved(result: Result) -> str:
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


def _limits(results: Sequence[Result]) -> Iterator[str]:
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
                open_limits.append(f"{limit.metric} {state} on {_device(result)}")
    yield joined(open_limits, "all met by the best settings")
    tried = [result.main.report.study.violations for result in results]
    broken, windows = sum(v.broken for v in tried), sum(v.tried for v in tried)
    yield f"{broken} of {windows} windows broke one while exploring"


def _next(results: Sequence[Result]) -> str:
    """Return the next step: tune an own service first, then hold its result."""
    own = [one for one in results if one.job.workload not in ("", "reference")]
    if not own:
        return "`jouletune doctor`, then `jouletune run --device …` with your own service"
    if not any(one.main.won for one in own):
        return "more knobs, or looser limits: `jouletune run --help`"
    return "set it yourself, or repeat the run with --keep --tuner URL: the services confirm and hold it"


def _cost(result: Result) -> str:
    """Return the duration and the energy of exploring as text."""
    bill = result.main.report.bill
    energy = "" if bill.explored_j is None else f" and {figure('energy_j', bill.explored_j)}"
    return f"{duration(bill.seconds)}{energy}"
