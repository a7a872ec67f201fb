"""The verbs of `python -m tests.bench`."""

from __future__ import annotations

import typer

from tests.bench.admission.command import admission
from tests.bench.budgets.command import budgets
from tests.bench.contest.command import made_up, surfaces
from tests.bench.declared.command import declared
from tests.bench.devices.command import devices
from tests.bench.federated.command import federated
from tests.bench.fleet.command import fleet
from tests.bench.load.command import load, load_real
from tests.bench.speculation.command import speculation, speculation_synthetic
from tests.bench.transfer.command import transfer

commands = typer.Typer(
    help="Judge tuners where the truth is known.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for verb, command in (
    ("surfaces", surfaces),
    ("made-up", made_up),
    ("devices", devices),
    ("speculation", speculation),
    ("speculation-synthetic", speculation_synthetic),
    ("admission", admission),
    ("budgets", budgets),
    ("federated", federated),
    ("fleet", fleet),
    ("load", load),
    ("load-real", load_real),
    ("declared", declared),
    ("transfer", transfer),
):
    commands.command(verb)(command)
