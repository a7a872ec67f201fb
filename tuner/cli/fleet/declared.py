"""`jouletune diff`, `apply` and `export fleet`: a whole fleet declared in one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.answers import Answer, show
from tuner.cli.asking import Api, with_api
from tuner.cli.options import Why, Yes, confirm, user_name
from tuner.core import ConfigError
from tuner.presentation.figures import how_many
from tuner.toml import parsed
from tuner.wire import FleetChange, FleetDiff, FleetDraft

CHANGES = 3
"""The exit code of a diff with changes."""

File = Annotated[
    Path,
    typer.Option("--file", "-f", metavar="FILE.toml", help="The fleet file; see docs/fleets.md."),
]
Prune = Annotated[
    bool,
    typer.Option(
        "--prune",
        help="Stop studies, and release budgets, that only an earlier fleet file declared.",
    ),
]


@with_api()
def diff(api: Api, file: File, prune: Prune = False, as_json: bool = False) -> None:
    """List what a fleet file would change; exits with 3 if anything would.

    Nothing is changed.
    """
    difference = api.diff_fleet(_draft(file, prune))
    show(Answer(difference, list(_lines(difference))), "json" if as_json else "table")
    if difference.changes:
        raise typer.Exit(CHANGES)


@with_api()
def apply(
    api: Api,
    file: File,
    prune: Prune = False,
    why: Why = "",
    yes: Yes = False,
    as_json: bool = False,
) -> Answer:
    """Create, change and replace studies and budgets as a fleet file declares.

    Lists the changes first, and asks before it stops a study. Idempotent.
    """
    draft = _draft(file, prune, why)
    preview = api.diff_fleet(draft)
    if not as_json:
        show(Answer(preview, list(_lines(preview))))
    if any(change.action == "stop" for change in preview.changes):
        confirm("stop and release as listed, and make the other changes?", yes)
    applied = api.apply_fleet(draft.model_copy(update={"expects": preview.fingerprint}))
    done = (
        f"{how_many(len(applied.changes), 'change')} made" if applied.changes else "nothing changed"
    )
    return Answer(applied, f"{file} ({applied.digest}): {done}")


@with_api()
def fleet(api: Api) -> Answer:
    """Print the active studies and the budgets as a fleet file."""
    exported = api.export_fleet()
    return Answer(exported, exported.text.rstrip("\n"))


def _draft(file: Path, prune: bool, why: str = "") -> FleetDraft:
    """Return the message with a fleet file. Raises ConfigError: it cannot be read, or is not TOML."""
    text = parsed(file)[0].expandtabs(4)
    if not text.strip():
        raise ConfigError(f"{file} is empty", hint="declare a [[group]]; see docs/fleets.md")
    return FleetDraft(
        lines=tuple(text.splitlines()),
        name=str(file),
        prune=prune,
        who=user_name(),
        why=why,
    )


def _lines(difference: FleetDiff) -> Iterator[str]:
    """Yield a diff as text: one line per change, then its details."""
    for name in difference.empty:
        yield f"group {name}: no registered device is in it"
    if difference.observed:
        yield f"only observed: {', '.join(difference.observed)}"
    for change in difference.changes:
        verb = "release" if change.budget and change.action == "stop" else change.action
        yield f"{verb} {_subject(change)}"
        yield from (f"    {detail}" for detail in change.details)
    same = how_many(difference.same, "study is", "studies are")
    if difference.same_budgets:
        same = f"{how_many(difference.same, 'study', 'studies')} and "
        same += f"{how_many(difference.same_budgets, 'budget')} are"
    yield f"{how_many(len(difference.changes), 'change')} to make; {same} as declared"


def _subject(change: FleetChange) -> str:
    """Return the budget, or the study with its devices and group, that a change is about."""
    if change.budget:
        return f"budget {change.budget}"
    devices = ", ".join(change.devices)
    study = f"study {change.study} of {devices}" if change.study else f"a study of {devices}"
    return f"{study} (group {change.group})" if change.group else study
