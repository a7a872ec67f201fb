"""`jouletune finetune admit`: whether fine-tuning may start beside inference, by windows measured so.

The table is a CSV file with a row per window, all of one inference at one setting, the batch apart:
`batch_size`, the metric of the constraint, and, where fine-tuning ran beside it throughout,
`finetuning_gflop` and `finetuning_flop_per_byte` of one of its steps (empty where nothing did). What
`jouletune history --study ID --format csv` writes needs only these two columns beside its own.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import AsJson

if TYPE_CHECKING:
    from policies.polythrottle.admission import MixWindow
    from tuner.core import Limit

BATCH = "batch_size"
GFLOP, INTENSITY = "finetuning_gflop", "finetuning_flop_per_byte"
KNOB = "knob:"

Row = Mapping[str, str]

commands = typer.Typer(help="Ask whether fine-tuning may start beside inference.")


@commands.callback()
def nouns() -> None:
    """Ask whether fine-tuning may start beside inference."""


@commands.command("admit")
def admit_(
    windows: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="CSV of measured windows: batch_size, the metric, finetuning_gflop, "
            "finetuning_flop_per_byte.",
        ),
    ],
    constraint: Annotated[
        str, typer.Option(metavar="TEXT", help='The SLO: "latency_p99_ms <= 700".')
    ],
    gflop: Annotated[float, typer.Option(help="10⁹ operations of one fine-tuning step.")],
    flop_per_byte: Annotated[float, typer.Option(help="Its operations per byte moved.")],
    batch: Annotated[int, typer.Option(metavar="B", help="Batch size of the inference.")],
    as_json: AsJson = False,
) -> None:
    """Say whether a fine-tuning request may start now: exit code 0 if so, 1 if not.

    It may where the upper 95 % bound of the latency predicted beside it keeps the limit. What the
    windows do not tell is not admitted. Start one request after another, never two at once.
    """
    from policies.polythrottle.admission import Demand, Mix, admit
    from tuner.cli.output import echo_json

    limit = _limit(constraint)
    samples = read_windows(windows, limit.metric)
    mix = Mix(Demand(), batch, Demand(gflop, flop_per_byte))
    answer = admit(samples, mix, limit, running=False)
    if as_json:
        echo_json(answer)
    else:
        word = "admitted" if answer.admitted else "not admitted"
        typer.echo(f"{word}: {answer.why} ({len(samples)} windows)")
    if not answer.admitted:
        raise typer.Exit(1)


def _limit(text: str) -> Limit:
    """Return an absolute constraint as a limit. Raises ConstraintSyntax, InvalidInput."""
    from tuner.core import Constraint, InvalidInput, Limit

    found = Constraint.parse(text)
    if found.relative:
        raise InvalidInput(
            f"{text!r} is relative to a baseline, which a table of windows does not have",
            hint="give the limit itself: latency_p99_ms <= 700",
        )
    return Limit(found.metric, found.op, found.bound)


def read_windows(path: Path, metric: str) -> list[MixWindow]:
    """Read what each window showed of a metric. Windows that prove nothing of it are left out.

    These are trials that did not complete or were cut short, and tails without a bound.

    Raises:
        InvalidInput: no such file, a column is missing, a cell is no usable number, or the windows
            are of several settings.
    """
    from policies.polythrottle.admission import Demand, Mix, MixWindow
    from tuner.core import Estimate, InvalidInput

    found = []
    for number, row in enumerate(_rows(path, metric), 2):
        if not _proves(row, metric):
            continue
        where = f"{path}, row {number}"
        idle = 0.0 if not row[GFLOP] and not row[INTENSITY] else math.nan
        beside = Demand(_cell(where, row, GFLOP, idle), _cell(where, row, INTENSITY, idle))
        stderr = _cell(where, row, f"{metric}:stderr", 0.0)
        shown = Estimate.of_mean(_above(where, row, metric), stderr)
        batch = _above(where, row, BATCH)
        if not batch.is_integer():
            raise InvalidInput(
                f"{where}: {BATCH} = {row[BATCH]!r} is no count", hint="mend the row"
            )
        found.append(MixWindow(Mix(Demand(), int(batch), beside), shown))
    return found


def _above(where: str, row: Row, name: str) -> float:
    """Return a number of a row that has to be above zero. Raises InvalidInput."""
    from tuner.core import InvalidInput

    value = _cell(where, row, name)
    if value == 0.0:
        raise InvalidInput(
            f"{where}: {name} = {row[name]!r} is not above zero", hint="mend the row"
        )
    return value


def _cell(where: str, row: Row, name: str, default: float = math.nan) -> float:
    """Return a number of a row, the default where the cell is empty. Raises InvalidInput."""
    from tuner.core import InvalidInput

    text = row.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0.0):
        raise InvalidInput(f"{where}: {name} = {text!r} is no usable number", hint="mend the row")
    return value


def _rows(path: Path, metric: str) -> Sequence[Row]:
    """Return the rows, knobs without their prefix. Raises InvalidInput."""
    from tuner.core import InvalidInput

    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            read = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"cannot read {path}: {error}", hint="name a CSV file") from None
    for number, row in enumerate(read, 2):
        # DictReader files surplus cells under None and fills missing ones with None.
        if None in row or None in row.values():
            raise InvalidInput(
                f"{path}, row {number}: not as many cells as columns", hint="mend the row"
            )
    knobs = {n for row in read for n in row if n and n.startswith(KNOB)} - {KNOB + BATCH}
    moved = [name for name in sorted(knobs) if len({row[name] for row in read}) > 1]
    if moved:
        raise InvalidInput(
            f"{path} has windows at several values of {', '.join(moved)}",
            hint="keep those of the setting that is held: interference depends on it",
        )
    rows = [{name.removeprefix(KNOB): text for name, text in row.items() if name} for row in read]
    missing = [n for n in (BATCH, metric, GFLOP, INTENSITY) if not rows or n not in rows[0]]
    if missing:
        raise InvalidInput(
            f"{path} has no column {', '.join(missing)}" if rows else f"{path} has no rows",
            hint=f"say what ran beside each window in {GFLOP} and {INTENSITY}",
        )
    return rows


def _proves(row: Row, metric: str) -> bool:
    whole = row.get("state", "completed") == "completed" and row.get("censored") != "True"
    return whole and bool(row.get(f"{metric}:high", "bounded")) and bool(row[metric])
