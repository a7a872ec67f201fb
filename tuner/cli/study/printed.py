"""The saving and the cost of a study, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from tuner.cli import listing
from tuner.cli.output import Plain, plain
from tuner.presentation.figures import joined
from tuner.presentation.outcomes import StudyOutcome
from tuner.presentation.reports import about, account, comparison, provenance, verdict


def document(main: StudyOutcome) -> dict[str, Plain]:
    """Return the report of a study, the reason for its outcome, and every trial."""
    report = plain(main.report)
    assert isinstance(report, dict)
    return {
        **report,
        "saving_percent": saving_percent(main),
        "why": main.why,
        "proposed": main.proposed,
        "won": main.won,
        "trials": plain(main.trials),
    }


def saving_percent(main: StudyOutcome) -> float | None:
    """Return the saving in percent, as earlier releases reported it; `saving` also has its error."""
    saving = main.report.saving
    return None if saving is None else 100.0 * saving.mean


def print_outcome(
    console: Console,
    main: StudyOutcome,
    board: str = "",
    beside: Iterable[str] = (),
    lacking: Iterable[str] = (),
) -> None:
    """Print the saving and cost of a study, the lines `beside` after the bill, and `lacking` last."""
    view = main.report.study
    console.print()
    title = f"Study {view.id}: {view.workload} on {board or joined(view.devices)}"
    console.print(title, style="bold", soft_wrap=True)
    console.print(f"  {about(main)}", soft_wrap=True)
    rows = list(comparison(main))
    if rows:
        for line in listing.lines(("", ">baseline", ">best", ">change"), rows):
            console.print(f"  {line}", soft_wrap=True)
    lines = (*verdict(main), *account(main), *beside, *provenance(main.report), *lacking)
    for text in lines:
        console.print(f"  {text}", soft_wrap=True)
