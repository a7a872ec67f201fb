"""The standings of a comparison as Markdown tables, ready for docs/figures.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from tests.bench.contest.contest import Standings
from tests.bench.contest.leave_one_out import Generalisation
from tests.bench.contest.score import Control, Pair, ScoreRow, Seconds, SourcePair, SourceRow
from tuner.presentation.figures import percent

OfSource = TypeVar("OfSource", SourceRow, SourcePair)


def markdown(results: Standings) -> str:
    """Return the standings as Markdown tables, grouped by slack."""
    parts = []
    for slack in dict.fromkeys(r.slack for r in results.rows):
        rows = [r for r in results.rows if r.slack == slack]
        above = [s for s in results.seconds_above_limit if s.slack == slack]
        parts += [
            f"Limit {slack:g} × the true baseline, {_count(rows[0].surfaces)}:",
            _main_table(rows, above),
        ]
        duels = [p for p in results.pairs if p.slack == slack]
        if duels:
            parts += ["Ours against each rival, paired by surface and seed:", _pairs_table(duels)]
        own = [r for r in results.by_source if r.slack == slack]
        if len({r.source for r in own}) > 1:
            parts += ["By source:", _sources_table(own)]
            apart = [p for p in results.pairs_by_source if p.slack == slack]
            parts += (
                ["Captured more than each rival, by source:", _apart_table(apart)] if apart else []
            )
        for chosen in (g for g in results.generalisations if g.slack == slack):
            parts += [_choice(chosen), _choices_table(chosen)]
    if results.controls:
        parts += ["Flat surfaces, after confirming:", _controls_table(results.controls)]
    return "\n\n".join(parts) or "no surface is worth tuning here"


def _main_table(rows: Sequence[ScoreRow], above: Sequence[Seconds]) -> str:
    """Return a row per tuner: captured by budget, then the other figures with all budgets in a cell."""
    budgets = list(dict.fromkeys(r.budget for r in rows))
    at = _at(budgets)
    lines = []
    for tuner in dict.fromkeys(r.tuner for r in rows):
        own = [r for r in rows if r.tuner == tuner]
        late = [s for s in above if s.tuner == tuner][-1]
        lines.append(
            [
                tuner,
                *(_doubtful(r.captured, r.captured_stderr) for r in own),
                _counts(r.windows_above for r in own),
                _percents(r.violations for r in own),
                " / ".join(_beyond(r.overshoot) for r in own),
                _beyond(own[-1].worst_overshoot),
                _percents(r.wrong_deployments for r in own),
                f"{late.seconds:.1f} ({late.with_early_abort:.1f})",
                f"{own[-1].seconds_per_suggestion:.3f}",
            ]
        )
    return _table(
        [
            "tuner",
            *(f"captured @{b}" for b in budgets),
            f"windows above the limit per study {at}",
            f"tried above the limit {at}",
            f"worst overshoot of a study {at}",
            f"of all @{budgets[-1]}",
            f"deployed above the limit {at}",
            f"s above the limit @{budgets[-1]} (with early abort)",
            "s per suggestion",
        ],
        lines,
    )


def _pairs_table(pairs: Sequence[Pair]) -> str:
    budgets = list(dict.fromkeys(p.budget for p in pairs))
    lines = []
    for rival in dict.fromkeys(p.rival for p in pairs):
        own = [p for p in pairs if p.rival == rival]
        ratios = ["–" if p.windows_ratio is None else f"{p.windows_ratio:.2f}" for p in own]
        gains = [_doubtful(p.difference, p.difference_stderr, "+") for p in own]
        pooled = [_doubtful(p.pooled, p.pooled_stderr, "+") for p in own]
        lines.append([rival, *gains, *pooled, " / ".join(ratios)])
    columns = [f"captured more @{b}" for b in budgets]
    pool = [f"surfaces alike @{b}" for b in budgets]
    return _table(
        ["rival", *columns, *pool, f"windows above, ours to theirs {_at(budgets)}"], lines
    )


def _sources_table(rows: Sequence[SourceRow]) -> str:
    """Return a row per source and tuner, with all budgets in a cell."""
    at = _at(list(dict.fromkeys(r.budget for r in rows)))
    lines = []
    for source, tuner in dict.fromkeys((r.source, r.tuner) for r in _by_source(rows)):
        own = [r for r in rows if (r.source, r.tuner) == (source, tuner)]
        lines.append(
            [
                source,
                str(own[0].surfaces),
                tuner,
                _counts(r.captured for r in own),
                _counts(r.windows_above for r in own),
                " / ".join(_beyond(r.overshoot) for r in own),
                _percents(r.wrong_deployments for r in own),
            ]
        )
    return _table(
        ["source", "surfaces", "tuner", f"captured {at}", f"windows above per study {at}",
         f"worst overshoot of a study {at}", f"deployed above {at}"],
        lines,
    )  # fmt: skip


def _apart_table(pairs: Sequence[SourcePair]) -> str:
    budgets = list(dict.fromkeys(p.budget for p in pairs))
    lines = []
    for source, rival in dict.fromkeys((p.source, p.rival) for p in _by_source(pairs)):
        own = [p for p in pairs if (p.source, p.rival) == (source, rival)]
        gains = [_doubtful(p.difference, p.difference_stderr, "+") for p in own]
        lines.append([source, str(own[0].surfaces), rival, *gains])
    return _table(["source", "surfaces", "rival", *(f"@{b}" for b in budgets)], lines)


def _by_source(rows: Sequence[OfSource]) -> list[OfSource]:
    """Return the rows grouped by source, in their order."""
    sources = list(dict.fromkeys(row.source for row in rows))
    return sorted(rows, key=lambda row: sources.index(row.source))


def _choice(choice: Generalisation) -> str:
    return (
        f"Chosen on all sources: {choice.chosen}, among {', '.join(choice.candidates)}; "
        "chosen without the source that is scored:"
    )


def _choices_table(choice: Generalisation) -> str:
    """Return a row per left-out source, then their mean beside the in-sample figure."""
    at = _at(choice.budgets)
    lost = [
        _doubtful(d, e, "+")
        for d, e in zip(choice.difference, choice.difference_stderr, strict=True)
    ]
    lines = [
        [one.source, one.chosen, _counts(one.captured), _counts(one.windows_above)]
        for one in choice.sources
    ]
    lines += [
        ["mean of them", "–", _counts(choice.left_out), _counts(choice.left_out_windows_above)],
        ["in-sample", choice.chosen, _counts(choice.in_sample),
         _counts(choice.in_sample_windows_above)],
        ["in-sample captures more by", "–", " / ".join(lost), "–"],
    ]  # fmt: skip
    return _table(
        ["source left out", "chosen", f"captured {at}", f"windows above per study {at}"], lines
    )


def _controls_table(controls: Sequence[Control]) -> str:
    return _table(
        ["tuner", "slack", "surfaces", "studies", "hold the baseline", "trials", "windows above",
         "within noise of it",
         "claimed saving", "true saving", "claim too much", "above the limit"],
        [
            [c.tuner, f"{c.slack:g}", str(c.surfaces), str(c.studies), percent(c.at_baseline),
             f"{c.trials:g}", f"{c.windows_above:.2f}", percent(c.within_noise),
             percent(c.claimed), percent(c.true), percent(c.overclaimed), percent(c.wrong)]
            for c in controls
        ],
    )  # fmt: skip


def _count(surfaces: int) -> str:
    return f"{surfaces} surface{'' if surfaces == 1 else 's'}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _doubtful(value: float, stderr: float | None, sign: str = "") -> str:
    return f"{value:{sign}.3f}" if stderr is None else f"{value:{sign}.3f} ± {stderr:.3f}"


def _at(budgets: Sequence[int]) -> str:
    return "@" + "/".join(map(str, budgets))


def _beyond(overshoot: float) -> str:
    """Return an overshoot in percent; from twice the limit on as a factor."""
    return f"×{1 + overshoot:.1f}" if overshoot >= 1.0 else f"{100 * overshoot:.1f} %"


def _counts(values: Iterable[float]) -> str:
    return " / ".join(f"{value:.2f}" for value in values)


def _percents(shares: Iterable[float]) -> str:
    return " / ".join(f"{100 * share:.1f}" for share in shares) + " %"
