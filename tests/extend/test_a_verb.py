"""A verb of the command line: one row in the table of commands, and one function in a file of its own."""

from __future__ import annotations

import json
from pathlib import Path

from db import open_store
from tests.extend.checkout import Checkout
from tests.unit.tuner.cli.worlds import created, operations

ROW = '("phases", "phases", "Count the studies in each phase."),\n        '
VERB = '''"""`jouletune phases`: how many studies are in each phase."""

from __future__ import annotations

from collections import Counter

import typer

from tuner.cli.options import AsJson, Db, TokenFile, TunerUrl


def phases(
    tuner: TunerUrl = "", token_file: TokenFile = None, db: Db = "", as_json: AsJson = False
) -> None:
    """Count the studies in each phase."""
    from tuner.cli.operator_api import open_api
    from tuner.cli.output import echo_json

    with open_api(tuner, token_file, db) as api:
        found = Counter(str(study.phase) for study in api.studies())
    if as_json:
        echo_json(dict(found))
        return
    for phase, count in found.items():
        typer.echo(f"{phase}: {count}")
'''
RUN = """
import sys

from tuner.cli.app import main

assert main(["--help"]) == 0
print("---")
assert main(["phases", "--db", sys.argv[1], "--json"]) == 0
"""


def test_a_verb_is_one_row_and_one_function(tmp_path: Path) -> None:
    copy = Checkout(tmp_path / "copy", "tuner")
    copy.insert("tuner/cli/app.py", '("doctor", "doctor"', ROW)
    copy.add("tuner/cli/phases.py", VERB)
    assert copy.changed == ["tuner/cli/app.py"] and copy.added == ["tuner/cli/phases.py"]
    database = f"sqlite:///{tmp_path}/tuner.sqlite"
    store = open_store(database)
    created(operations(store))
    store.close()
    helped, _, printed = copy.python(RUN, database).partition("---")
    assert "Count the studies in each phase." in helped
    assert json.loads(printed) == {"baseline": 1}
