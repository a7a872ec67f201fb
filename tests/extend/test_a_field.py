"""A field of a study: described in one file, and present in every interface."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.extend.checkout import Checkout
from tuner.core import PARTS, Written, request_fields
from tuner.presentation.reports import OWN_LINES
from tuner.presentation.texts import DERIVED
from tuner.service.declared.file import IN_A_STUDY
from tuner.wire import StudyDraft

OWNER = 'owner: Annotated[str, Described("The team to ask.", "TEAM")] = ""\n    '
PACE = 'pace_s: Annotated[Span, Described("The pause before a trial.", "SECONDS")] = 3.0\n    '
CALM = 'calm: Annotated[float, Described("The calm before a trial.")] = 0.0\n    '
DOORS = """
import io, json, sys
from contextlib import redirect_stdout

from db import open_store
from tests.generated import request, schema
from tests.unit.tuner.cli import worlds
from tests.unit.tuner.web.site import Site, send
from tuner.cli.app import main
from tuner.client import Client
from tuner.presentation.reports import facts
from tuner.wire import Change, FleetDraft, StudyDraft

def ran(*arguments):
    out = io.StringIO()
    with redirect_stdout(out):
        assert main([*arguments]) == 0, arguments
    return out.getvalue()

def both(study):
    return study["owner"], study["terms"]["pace_s"], study["exploration"]["calm"]

seen = {}
url = f"sqlite:///{sys.argv[1]}/tuner.sqlite"
store = open_store(url)
verbs = worlds.operations(store)
body = {"devices": ["sim"], "policy": "scripted", "constraints": [], "owner": "web"}
body |= {"terms": {"pace_s": 4}, "exploration": {"calm": 2}}
view = verbs.create(StudyDraft.model_validate_json(json.dumps(body)))
seen["draft and view"] = both(json.loads(view.model_dump_json()))
seen["database"] = both(json.loads(verbs.study(view.id).model_dump_json()))
told = dict(facts(verbs.report(view.id)))
seen["study show"] = told["owner"], float(told["pace"].removesuffix(" s")), float(told["calm"])
file = FleetDraft(lines=tuple(verbs.export_fleet().text.splitlines()))
alike = verbs.diff_fleet(file).changes[0].details
seen["export, then diff"] = [len(alike), file.lines.count('owner = "web"')]
changed = "\\n".join(file.lines)
for then, now in (('"web"', '"ops"'), ("4.0", "5.0"), ("2.0", "1.0")):
    changed = changed.replace(then, now)
changed = FleetDraft(lines=tuple(changed.splitlines()))
seen["diff"] = [one for one in verbs.apply_fleet(changed).changes[-1].details if "→" in one]
(view,) = (study for study in verbs.studies() if study.phase != "stopped")
seen["file"] = view.owner, view.terms.pace_s, view.exploration.calm
verbs.stop(view.id, Change())
site = Site(worlds.operations())
browser = site.signed_in("operator", "ann")
page = browser.get("/studies/new").text
seen["form"] = ['name="owner"' in page, "The pause before a trial." in page]
form = {"device": "sim", "policy": "scripted", "owner": "web", "pace_s": "4", "calm": "2"}
send(browser, "/studies/new", "/studies/new", **form)
(made,) = site.verbs.studies()
page = browser.get(f"/studies/{made.id}").text
seen["page"] = ["owner web" in page, "pace_s 4.0 s" in page, "calm 2.0" in page]
seen["form sent"] = made.owner, made.terms.pace_s, made.exploration.calm
store.close()
options = "--device sim --policy sobol --no-constraint --owner web --pace 4 --calm 2 --json --db"
seen["study create"] = both(json.loads(ran("study", "create", *options.split(), url)))
helped = ran("study", "create", "--help")
seen["help"] = ["--owner TEAM" in helped, "--pace SECONDS" in helped]

class Fake:
    def create(self, draft):
        return draft

drafted = Client.tune(Fake(), "sim", owner="web")
seen["tune"] = [drafted.owner, "owner: str" in request()]
seen["schema"] = ["The team to ask." in schema(), "The pause before a trial." in schema()]
print(json.dumps(seen))
"""


def test_a_field_is_described_in_one_file_and_seen_at_every_door(tmp_path: Path) -> None:
    copy = Checkout(tmp_path / "copy", "tuner")
    copy.insert("tuner/core/studies.py", 'seed: Annotated[int, Described("Same', OWNER)
    copy.insert("tuner/core/studies.py", "allow_estimated: Annotated[bool", PACE)
    copy.insert("tuner/core/studies.py", "max_time_share: Annotated[Share", CALM)
    assert copy.changed == ["tuner/core/studies.py"]
    assert not copy.added
    seen = json.loads(copy.python(DOORS, str(tmp_path)))
    assert seen == {
        "draft and view": ["web", 4.0, 2.0],
        "database": ["web", 4.0, 2.0],
        "study show": ["web", 4.0, 2.0],
        "export, then diff": [1, 1],
        "diff": ["owner: web → ops", "terms.pace_s: 4.0 → 5.0"],
        "file": ["ops", 5.0, 1.0],
        "form": [True, True],
        "page": [True, True, True],
        "form sent": ["web", 4.0, 2.0],
        "study create": ["web", 4.0, 2.0],
        "help": [True, True],
        "tune": ["web", True],
        "schema": [True, True],
    }


NO_OPTION = {
    "frozen": "`study freeze` gives the reason",
    "group": "a fleet file declares it",
    "time_zone": "it is that of the windows",
    "windows": "they are tables of a fleet file",
}
"""The fields of a request without an option of `study create`, with the reason."""
NO_FIELD = {
    "choices": "the devices to choose from differ in their knobs",
    "conditions": "they need choices",
    "frozen": "the page of the study pauses it",
    "group": "a fleet file declares it",
    "time_zone": "it is that of the windows",
    "windows": "they are tables of a fleet file",
}
"""The fields of a request without a field in the form for a new study, with the reason."""
BY_HAND = {"constraints", "protocol", "devices", "who"} | PARTS.keys()
"""Fields that an interface writes by hand: a list of lines, the subject, and parts with fields."""


@pytest.mark.parametrize(
    ("omitted", "by_hand"),
    [(NO_OPTION, {"choices", "conditions"}), (NO_FIELD, set())],
    ids=["study create", "form"],
)
def test_each_interface_gives_the_reason_for_the_fields_it_leaves_out(
    omitted: dict[str, str], by_hand: set[str]
) -> None:
    whole = {f.name for kind in PARTS.values() for f in dataclasses.fields(kind)}
    whole |= StudyDraft.model_fields.keys()
    offered = [field.name for field in request_fields()]
    assert len(offered) == len({*offered}), "two fields of a request have one name"
    assert whole - {*offered} - BY_HAND - by_hand == omitted.keys()


def test_a_fact_and_a_devices_own_table_name_fields_that_exist() -> None:
    assert OWN_LINES | DERIVED.keys() <= {field.name for field in request_fields()}
    written = {field.name for field in dataclasses.fields(Written)}
    assert IN_A_STUDY - {"choices", "exploration"} <= written
