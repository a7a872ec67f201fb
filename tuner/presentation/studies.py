"""Studies found by text, state, device and time, in order; and studies side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from tuner.bounds import redacted
from tuner.core import InvalidInput, Phase, Study, Unreadable, UnreadableStudy
from tuner.moments import moment, when
from tuner.presentation.charts import DASHES, SYMBOLS, Axes, Chart, plain, scale
from tuner.presentation.figures import how_many, joined, shown
from tuner.presentation.standing import standing
from tuner.presentation.texts import improvement_of, requested_metrics
from tuner.wire import SettingView, StudyReport, StudyView

OneStudy = TypeVar("OneStudy", bound=StudyView | Study | UnreadableStudy)
Read = TypeVar("Read")
MOST_COMPARED = 4
SORTS: Mapping[str, Callable[[Any], Any]] = {
    "newest": lambda study: (study.phase is Phase.STOPPED, -study.created_at.timestamp()),
    "oldest": lambda study: study.created_at,
    "name": lambda study: titled(study),
    "device": lambda study: study.devices,
    "status": lambda study: list(Phase).index(study.phase),
}
"""The orders of studies by their names; by default the active ones come first, then the newest."""


def titled(study: StudyView | Study | UnreadableStudy) -> str:
    """Return a study's name; by default its workload and its devices."""
    return getattr(study, "name", "") or f"{study.workload} on {joined(study.devices)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFilters:
    """The filters and the order of a list of studies, as an operator writes them; empty: any.

    Each word of `find` is in the study's id, name, devices, workload, group or policy.
    """

    find: str = ""
    phase: str = ""
    device: str = ""
    group: str = ""
    since: str = ""
    sort: str = ""

    def of(self, studies: Iterable[OneStudy], now: datetime) -> list[OneStudy]:
        """Return the studies that match, in order. Raises InvalidInput: a filter cannot be read."""
        for name, words in (("phase", list(Phase)), ("sort", list(SORTS))):
            if getattr(self, name) not in ("", *words):
                raise InvalidInput(
                    f"{name} cannot be {getattr(self, name)!r}", hint=f"choose {', '.join(words)}"
                )
        start, words = moment("since", self.since, now), self.find.lower().split()
        studies = list(studies)
        whole = any(self.device in study.devices for study in studies)
        matching = [
            study
            for study in studies
            if self.phase in ("", study.phase)
            and self.group in ("", getattr(study, "group", ""))
            and (start is None or study.created_at >= start)
            and any(
                name == self.device if whole else name.startswith(self.device)
                for name in study.devices
            )
            and all(word in _searched(study) for word in words)
        ]
        return sorted(matching, key=SORTS[self.sort or "newest"])


def _searched(study: StudyView | Study | UnreadableStudy) -> str:
    """Return the text of a study in which words are searched."""
    own = (getattr(study, name, "") for name in ("name", "group", "policy"))
    return " ".join((study.id, study.workload, *study.devices, *own)).lower()


def comparable(names: Sequence[str], least: int = 2) -> Sequence[str]:
    """Return the names of studies or trials to compare. Raises InvalidInput: a wrong number."""
    if not least <= len(names) <= MOST_COMPARED:
        count = how_many(len(names), "name is", "names are")
        raise InvalidInput(f"{count} given", hint=f"give {least} to {MOST_COMPARED}")
    return names


def readable(read: Callable[[str], Read], name: str) -> Read | Unreadable:
    """Return what is read by a name; its error if it is unreadable, so that others are shown."""
    try:
        return read(name)
    except Unreadable as error:
        return error


def _origin(report: StudyReport) -> str:
    """Return the origins of a study's requested metrics: one word if all have the same."""
    own = {m: o for m in requested_metrics(report.study) if (o := report.origins.get(m))}
    same = len({*own.values()}) == 1
    return next(iter(own.values())) if same else joined([f"{m} {o}" for m, o in own.items()], "–")


def side_by_side(studies: Sequence[StudyReport | Unreadable]) -> list[tuple[str, ...]]:
    """Return rows of a fact's name and its text for each study; an unreadable one only has its error."""
    columns = [
        {"status": f"unreadable: {redacted(str(one))}"}
        if isinstance(one, Unreadable)
        else _compared(one)
        for one in studies
    ]
    names = dict.fromkeys(name for own in sorted(columns, key=len, reverse=True) for name in own)
    return [(name, *(own.get(name, "–") for own in columns)) for name in names]


def _compared(report: StudyReport) -> dict[str, str]:
    """Return the facts in which studies are compared, by name."""
    view = report.study
    best, metrics = view.best or view.baseline, requested_metrics(view)
    return {
        "name": titled(view),
        "status": standing(view),
        "created": when(view.created_at),
        "origin": _origin(report),
        "objective": view.objective,
        "constraints": joined(view.constraints, "none"),
        "limits": joined((limit.in_short for limit in view.limits), "–"),
        "saving": improvement_of(report) or "none",
        **{knob: str(value) for knob, value in best.setting.items()},
        **{m: shown(m, best.metrics, view.quantities) for m in metrics},
        **{f"baseline {m}": shown(m, view.baseline.metrics, view.quantities) for m in metrics},
        "trials": str(sum(view.trials.values())),
    }


def fronts(looks: Sequence[tuple[StudyReport, Sequence[SettingView]]]) -> Chart | None:
    """Return a chart of the Pareto fronts of studies with the first one's objective; None without one."""
    first = looks[0][0]
    y, *others = requested_metrics(first.study)
    if not others:
        return None
    axes = Axes(others[0], y, scale(first, others[0]), scale(first, y))
    data = [
        {
            "name": plain(f"{report.study.id}, {_origin(report)}"), "mode": "lines+markers",
            "x": [a for a, _ in points], "y": [b for _, b in points], "line": {"shape": "hv", "dash": dash},
            "marker": {"symbol": symbol, "size": 9},
        }
        for (report, front), dash, symbol in zip(looks, DASHES, SYMBOLS.values(), strict=False)
        if (points := sorted(p for s in front if (p := axes.place(s)) is not None))
    ]  # fmt: skip
    return {"data": data, "layout": axes.titles()} if data else None
