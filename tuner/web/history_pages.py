"""The pages of the history: trials of all studies with filters, comparison and export; and the events."""

# No postponed annotations: FastAPI 0.121 does not find the names in those of a class.
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

import db
from db.exports import as_csv, as_json, as_parquet
from db.history import HistoryQuestion, HistoryRow, recent
from tuner.core import InvalidInput, Study, TrialState, Unreadable, Verdict
from tuner.presentation.figures import joined
from tuner.presentation.studies import comparable, fronts, readable
from tuner.presentation.studies import side_by_side as beside
from tuner.service.http.bodies import Bound, BoundedRoute
from tuner.service.operations import Operations
from tuner.study.moves import needed_metrics
from tuner.verbs.questions import narrowed
from tuner.web.looks import Judges
from tuner.web.render import Pages
from tuner.wire import StudyView, TrialView

PAGE = 50
JUDGING_S = 0.15
"""The longest wait of a page in seconds for verdicts of studies that no page has shown since the start."""
EVENTS, MOST_EVENT_PAGES = 100, 20
SORTS: dict[str, Callable[[HistoryRow], Any]] = {
    "start": lambda row: -row.started_at.timestamp(),
    "study": lambda row: (row.study, row.number),
    "device": lambda row: row.devices,
    "state": lambda row: str(row.state),
    "verdict": lambda row: str(row.verdict or ""),
}


OWN: dict[str, Callable[[HistoryRow], str]] = {
    "device": lambda row: joined(row.devices),
    "workload": lambda row: row.workload,
    "phase": lambda row: str(row.phase),
    "state": lambda row: f"{row.state}, cut short" if row.censored else str(row.state),
    "reason": lambda row: row.reason or "–",
}
"""The columns other than metrics, with the text that they show of a trial."""
FIRST = ("device",)
"""The columns beside the metrics if none were chosen."""


Text = Annotated[str, Bound()]


@dataclass(frozen=True, slots=True)
class HistoryFilters:
    """The filters of the history, as in the URL."""

    device: Text = ""
    workload: Text = ""
    study: Text = ""
    group: Text = ""
    since: Text = ""
    until: Text = ""
    verdict: Text = ""
    state: Text = ""

    def question(self) -> HistoryQuestion:
        """Return the filters as a query of the history. Raises InvalidInput: one is not valid."""
        return narrowed(None, {name: text for name, text in asdict(self).items() if text})


def history_pages(pages: Pages, operations: Operations) -> APIRouter:
    """Return the routes of the history's pages."""
    router, judges = APIRouter(route_class=BoundedRoute), Judges(operations)

    @router.get("/history")
    def show(
        request: Request,
        filters: Annotated[HistoryFilters, Depends()],
        sort: str = "start",
        page: int = 1,
    ) -> Response:
        """Show trials of all studies, latest first; `sort` orders only the rows within a page."""
        at = max(page, 1)
        store, question, pending = operations.loop.store, filters.question(), set[str]()
        past = judges.past if question.verdict else judges.within(JUDGING_S, pending)
        matching = recent(store, question, PAGE + 1, (at - 1) * PAGE, past)
        operations.note_unread(matching)
        rows = sorted(matching[:PAGE], key=SORTS.get(sort, SORTS["start"]))
        studies = _studies(store, rows)
        needed = dict.fromkeys(m for s in studies for m in needed_metrics(s))
        measured = dict.fromkeys(m for row in rows for m in row.metrics)
        offered = [*OWN, *needed, *sorted(measured.keys() - needed.keys())]
        given = request.query_params.getlist("columns")
        columns = [n for n in offered if n in given] if given else [*FIRST, *needed]
        return pages.page(
            request, "history", filters=filters, rows=rows, more=len(matching) > PAGE, at=at, sort=sort,
            metrics=[m for m in columns if m not in OWN], columns=columns, offered=offered,
            chosen=bool(given), own=OWN, pending=pending, defaults={s.id: s.baseline for s in studies},
            verdicts=list(Verdict), states=list(TrialState), sorts=list(SORTS),
            query=_query(request, "page", "sort", "columns"),
        )  # fmt: skip

    @router.get("/history/export")
    def export(filters: Annotated[HistoryFilters, Depends()], format: str = "csv") -> Response:
        """Return all trials that pass the filters as a file."""
        rows = operations.history(filters.question())
        if format not in EXPORTS:
            raise InvalidInput(f"no history is written as {format!r}", hint="csv, json or parquet")
        kind, written = EXPORTS[format]
        name = f'attachment; filename="trials.{format}"'
        return Response(written(rows), media_type=kind, headers={"Content-Disposition": name})

    @router.get("/compare")
    def compare(request: Request, trial: str = "") -> Response:
        """Show up to 4 trials side by side, `trial=STUDY:NUMBER,STUDY:NUMBER`, or 2 to 4 studies."""
        studies = request.query_params.getlist("study")
        if studies:
            looks = [readable(operations.look, study) for study in comparable(studies)]
            sides = [a if isinstance(a, Unreadable) else a.report for a in looks]
            whole = [(a.report, a.front) for a in looks if not isinstance(a, Unreadable)]
            return pages.page(
                request, "compare_studies", studies=studies, rows=beside(sides),
                front=fronts(whole) if whole else None,
            )  # fmt: skip
        names = [n for text in request.query_params.getlist("trial") for n in text.split(",") if n]
        compared = [_trial(operations, name) for name in comparable(names, 0)]
        return side_by_side(pages, request, compared)

    @router.get("/events")
    def events(request: Request, study: str = "", device: str = "", page: int = 1) -> Response:
        """Show the latest events, newest first, in 20 pages at most; `GET /v1/events` returns all."""
        at = min(max(page, 1), MOST_EVENT_PAGES)
        logged = operations.events(study or None, device or None, at * EVENTS)[::-1]
        last = at + 1 if len(logged) == at * EVENTS and at < MOST_EVENT_PAGES else at
        rows = logged[(at - 1) * EVENTS :]
        return pages.page(
            request, "events", rows=rows, study=study, device=device, at=at, last=last
        )

    return router


def _studies(store: db.Store, rows: Sequence[HistoryRow]) -> list[Study]:
    """Return the studies of some trials, without studies that cannot be read."""
    stored = store.studies.stored(among={row.study for row in rows})
    return [study for study in stored if isinstance(study, Study)]


def side_by_side(
    pages: Pages, request: Request, trials: Sequence[tuple[StudyView, TrialView]]
) -> Response:
    """Return a page with the trials as columns: rows of knobs, then rows of metrics."""
    settings = [trial.setting for _, trial in trials]
    knobs = {name: [s.get(name, "–") for s in settings] for s in settings for name in s}
    metrics = dict.fromkeys(metric for _, trial in trials for metric in trial.metrics)
    names = ", ".join(f"{view.id}:{trial.number}" for view, trial in trials)
    return pages.page(
        request, "compare", trials=trials, knobs=knobs, metrics=list(metrics), names=names
    )


def _trial(operations: Operations, name: str) -> tuple[StudyView, TrialView]:
    """Return a trial by its name `STUDY:NUMBER`, with its study. Raises InvalidInput."""
    study, _, number = name.partition(":")
    look = operations.look(study)
    trial = next((t for t in look.trials if str(t.number) == number), None)
    if trial is None:
        raise InvalidInput(f"study {study} has no trial {number!r}", hint="write STUDY:NUMBER")
    return look.report.study, trial


def _parquet(rows: Sequence[HistoryRow]) -> bytes:
    """Return trials as the bytes of a Parquet file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trials.parquet"
        as_parquet(rows, file)
        return file.read_bytes()


EXPORTS: dict[str, tuple[str, Callable[[Sequence[HistoryRow]], str | bytes]]] = {
    "csv": ("text/csv", as_csv),
    "json": ("application/json", as_json),
    "parquet": ("application/vnd.apache.parquet", _parquet),
}


def _query(request: Request, *without: str) -> str:
    """Return the URL's non-empty parameters, except for some, as a query string."""
    parameters = [(k, v) for k, v in request.query_params.multi_items() if k not in without and v]
    return urlencode(parameters)
