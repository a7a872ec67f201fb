"""A verb of the command line: one row in the table of commands, and one function in a separate file."""

from __future__ import annotations

import json
from pathlib import Path

from db import open_store
from tests.extend.checkout import Checkout
from tests.unit.tuner.cli.worlds import created, operations

ROW = '("phases", "study.phases", "Count the studies in each phase."),\n    '
VERB = '''"""`jouletune phases`: how many studies are in each phase."""

from __future__ import annotations

from collections import Counter

from tuner.cli.answers import Answer
from tuner.cli.asking import Api, with_api


@with_api()
def phases(api: Api) -> Answer:
    """Count the studies in each phase."""
    counts = Counter(str(study.phase) for study in api.studies())
    return Answer(dict(counts), [f"{phase}: {count}" for phase, count in counts.items()])
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
    copy.insert("tuner/cli/table.py", '("doctor", "host.doctor"', ROW)
    copy.add("tuner/cli/study/phases.py", VERB)
    assert copy.changed == ["tuner/cli/table.py"] and copy.added == ["tuner/cli/study/phases.py"]
    database = f"sqlite:///{tmp_path}/tuner.sqlite"
    store = open_store(database)
    created(operations(store))
    store.close()
    helped, _, printed = copy.python(RUN, database).partition("---")
    assert "Count the studies in each phase." in helped
    assert json.loads(printed) == {"baseline": 1}
