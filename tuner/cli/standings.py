"""The standings of a comparison as Markdown tables, ready for docs/figures.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuner.bench.contest import Standings
from tuner.bench.score import Control, Pair, ScoreRow, Seconds
from tuner.presentation.figures import percent


def markdown(found: Standings) -> str:
    """Return the standings as Markdown tables, those of each slack together."""
    parts = []
    for slack in dict.fromkeys(r.slack for r in found.rows):
        rows = [r for r in found.rows if r.slack == slack]
        above = [s for s in found.seconds_above_limit if s.slack == slack]
        parts += [
            f"Limit {slack:g} × the true baseline, {_count(rows[0].surfaces)}:",
            _main_table(rows, above),
        ]
        duels = [p for p in found.pairs if p.slack == slack]
        if duels:
            parts += ["Ours against each rival, paired by surface and seed:", _pairs_table(duels)]
    if found.controls:
        parts += ["Flat surfaces, after confirming:", _controls_table(found.controls)]
    return "\n\n".join(parts) or "no surface is worth tuning here"


def _main_table(rows: Sequence[ScoreRow], above: Sequence[Seconds]) -> str:
    """Return a row per tuner: captured by budget, then the rest with its budgets in one cell."""
    budgets = list(dict.fromkeys(r.budget for r in rows))
    at = "@" + "/".join(map(str, budgets))
    lines = []
    for tuner in dict.fromkeys(r.tuner for r in rows):
        own = [r for r in rows if r.tuner == tuner]
        late = [s for s in above if s.tuner == tuner][-1]
        lines.append(
            [
                tuner,
                *(_doubtful(r.captured, r.captured_stderr) for r in own),
                _percents(r.violations for r in own),
                _percents(r.overshoot for r in own),
                _percents(r.wrong_deployments for r in own),
                f"{late.seconds:.1f} ({late.with_early_abort:.1f})",
                f"{own[-1].seconds_per_suggestion:.3f}",
            ]
        )
    return _table(
        [
            "tuner",
            *(f"captured @{b}" for b in budgets),
            f"tried above the limit {at}",
            f"worst overshoot {at}",
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
        ratios = ["–" if p.violations_ratio is None else f"{p.violations_ratio:.2f}" for p in own]
        gains = [f"{_doubtful(p.difference, p.difference_stderr, '+')}" for p in own]
        lines.append([rival, *gains, " / ".join(ratios)])
    at = "/".join(map(str, budgets))
    columns = [f"captured more @{b}" for b in budgets]
    return _table(["rival", *columns, f"violations, ours to theirs @{at}"], lines)


def _controls_table(controls: Sequence[Control]) -> str:
    return _table(
        ["tuner", "slack", "surfaces", "studies", "hold the baseline", "within noise of it",
         "claimed saving", "true saving", "claim too much", "above the limit"],
        [
            [c.tuner, f"{c.slack:g}", str(c.surfaces), str(c.studies), percent(c.at_baseline),
             percent(c.within_noise), percent(c.claimed), percent(c.true),
             percent(c.overclaimed), percent(c.wrong)]
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


def _percents(shares: Iterable[float]) -> str:
    return " / ".join(f"{100 * share:.1f}" for share in shares) + " %"
