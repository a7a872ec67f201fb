"""The budgets of a fleet file: their changes in order, and refusals with line and key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.tuner.service.budgets.test_divider import FakeHost, Rack
from tests.unit.tuner.service.declared.test_apply import draft, ending_after_one
from tuner.core import CapKnob, ConfigError
from tuner.wire import BudgetDraft, BudgetReport, FleetDiff

FILE = """
[[budget]]
name = "one"
select = { id = "gpu0" }
watts = 300

[[budget]]
name = "two"
select = { id = ["gpu1", "gpu2"] }
rows = [{ hours = "8-20", value = 500 }, { value = 600 }]
time_zone = "Europe/Berlin"
priorities = { "gpu1" = 2 }
reboot_after_s = 90
measure = false
"""


def made(diff: FleetDiff) -> list[tuple[str, str]]:
    return [(change.action, change.budget) for change in diff.changes]


@pytest.fixture
def rack() -> Rack:
    return Rack()


def test_a_file_of_budgets_applied_twice_changes_nothing_and_the_watts_are_kept(rack: Rack) -> None:
    verbs = rack.operations
    seen = verbs.diff_fleet(draft(FILE))
    assert verbs.budgets() == [], "a diff changes nothing"
    assert made(seen) == [("create", "one"), ("create", "two")]
    assert verbs.apply_fleet(draft(FILE, expects=seen.fingerprint)) == seen
    again = verbs.apply_fleet(draft(FILE))
    assert (again.changes, again.same_budgets) == ((), 2)
    rack.pass_s(5)
    assert rack.drawn_w() <= 300.0 + 600.0
    two = verbs.budget("two")
    assert (two.reboot_after_s, two.measure, two.budget_w) == (90.0, False, 500.0)
    assert {m.device: m.priority for m in two.members} == {"gpu1": 2, "gpu2": 0}


def test_changes_are_named_and_lower_watts_come_first(rack: Rack) -> None:
    verbs = rack.operations
    verbs.apply_fleet(draft(FILE))
    rack.event(watts=250.0, groups=("one",))
    other = FILE.replace("watts = 300", "watts = 350").replace("value = 500", "value = 450")
    changed = verbs.apply_fleet(draft(other))
    assert made(changed) == [("change", "two"), ("change", "one")]
    assert changed.changes[1].details == ("watts: 300 W → 350 W",)
    assert len(verbs.budget("one").events) == 1, "an event of the grid stays"
    assert verbs.apply_fleet(draft(other)).changes == ()


def test_a_device_may_move_from_one_group_to_another(rack: Rack) -> None:
    verbs = rack.operations
    verbs.apply_fleet(draft(FILE))
    rack.pass_s(5)
    moved = FILE.replace('"gpu0"', '["gpu0", "gpu1"]').replace('["gpu1", "gpu2"]', '"gpu2"')
    assert len(verbs.apply_fleet(draft(moved)).changes) == 2
    rack.pass_s(10)
    assert [m.device for m in verbs.budget("one").members] == ["gpu0", "gpu1"]
    assert rack.hosts["gpu1"].group == "one"


def test_only_pruning_releases_budgets_no_longer_in_the_file(rack: Rack) -> None:
    verbs = rack.operations
    rack.set(200.0, select={"id": ("gpu2",)})
    one = FILE.partition('[[budget]]\nname = "two"')[0]
    verbs.apply_fleet(draft(one))
    rack.pass_s(5)
    empty = "[exploration]\n"
    assert verbs.apply_fleet(draft(empty)).changes == ()
    assert made(verbs.apply_fleet(draft(empty, prune=True))) == [("stop", "one")]
    rack.pass_s(5)
    assert rack.hosts["gpu0"].group == ""
    assert [b.name for b in verbs.budgets()] == ["rack"], "that one was declared by hand"


def test_a_budget_set_by_hand_continues_as_declared(rack: Rack) -> None:
    verbs = rack.operations
    verbs.set_budget("one", rack_draft("gpu0", 300.0))
    one = FILE.partition('[[budget]]\nname = "two"')[0]
    changed = verbs.apply_fleet(draft(one))
    assert changed.changes[0].details == ("declared: by hand → by a file",)
    verbs.set_budget("one", rack_draft("gpu0", 310.0))
    assert made(verbs.apply_fleet(draft("[exploration]\n", prune=True))) == [("stop", "one")]


def rack_draft(device: str, watts: float) -> BudgetDraft:
    return BudgetDraft(select={"id": (device,)}, watts=watts)


def test_an_exported_file_declares_the_present_fleet(rack: Rack) -> None:
    verbs = rack.operations
    verbs.apply_fleet(draft(FILE))
    text = verbs.export_fleet().text
    assert verbs.diff_fleet(draft(text)).changes == ()
    assert verbs.diff_fleet(draft(text)).same_budgets == 2
    assert "time_zone" not in text.partition('name = "two"')[0]


def test_an_apply_that_failed_half_way_converges_when_repeated(rack: Rack) -> None:
    for left in (2, 1):
        assert len(rack.operations.diff_fleet(draft(FILE)).changes) == left
        with ending_after_one(), pytest.raises(KeyboardInterrupt):
            rack.operations.apply_fleet(draft(FILE))
    assert not rack.operations.diff_fleet(draft(FILE)).changes


def test_a_group_of_no_device_is_listed_and_not_released(rack: Rack) -> None:
    diff = rack.operations.diff_fleet(draft(FILE.replace('"gpu0"', '"none"'), prune=True))
    assert (diff.empty, made(diff)) == (("one",), [("create", "two")])


WRONG = [
    ("watts = 300", "watts = 50", 5, "50 W more"),
    ("watts = 300", "watts = -1", 5, "watts must be at least 0"),
    ("watts = 300", 'series = "grid"\nwatts = 300', 3, "needs one of watts, rows and series"),
    ("watts = 300", 'series = "solar"', 5, "no series 'solar'"),
    ("watts = 300", "wats = 300", 5, "did you mean watts?"),
    ('name = "one"', 'name = "a b"', 3, "name cannot be 'a b'"),
    ('name = "two"', 'name = "one"', 8, "used twice"),
    ('{ id = "gpu0" }', "{}", 4, "select is empty"),
    ('"gpu0"', '"gpu1"', 9, "gpu1 is in the budget one"),
    ("reboot_after_s = 90", "reboot_after_s = 3", 13, "reboot_after_s cannot be 3"),
    ("Berlin", "Bärlin", 11, "time_zone"),
    ('hours = "8-20"', 'hours = "8"', 10, "hours"),
    ("measure = false", "measure = 0", 14, "measure must be a boolean"),
    ("[[budget]]", "[[budgets]]", 2, "did you mean budget?"),
]


@pytest.mark.parametrize(("then", "now", "line", "words"), WRONG)
def test_a_wrong_file_changes_nothing_and_names_line_and_key(
    rack: Rack, then: str, now: str, line: int, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        rack.operations.apply_fleet(draft(FILE.replace(then, now)))
    message = str(caught.value)
    assert words in message
    assert f"line {line}" in message
    assert rack.operations.budgets() == []


def test_a_device_without_a_floor_is_refused_by_line(rack: Rack) -> None:
    class Bare(FakeHost):
        def report(self) -> BudgetReport:
            return replace_knobs(super().report())

    rack.hosts["gpu0"] = Bare()
    rack.exchange("gpu0")
    with pytest.raises(ConfigError, match=r"line 4: budget 1: .*gpu0"):
        rack.operations.apply_fleet(draft(FILE))


def replace_knobs(report: BudgetReport) -> BudgetReport:
    knobs = (*report.knobs, replace(CapKnob("gpu.clock_mhz", 600.0), default=1410.0))
    return report.model_copy(update={"knobs": knobs})
