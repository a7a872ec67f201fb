"""A fleet file: its changes, none when it is applied again, and refusals with line and key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from policies import load_policy
from tests.builders import SPACE, Time, device, knob
from tests.stores import memory_store
from tests.unit.tuner.cli import worlds
from tests.unit.tuner.service.declared.wrong import WEB, WRONG
from tuner.config import SeriesTable, TunerConfig
from tuner.core import ConfigError, Conflict, DeviceBusy, Exploration, Phase, Space, Terms
from tuner.service.declared import apply as applying
from tuner.service.energy_price import EnergyPrice
from tuner.service.operations import Operations
from tuner.study.loop import Loop
from tuner.wire import Change, FleetDiff, FleetDraft, StudyDraft

ROOT = Path(__file__).parents[5]


def fleet(count: int = 3) -> Operations:
    """Return the verbs over some devices, all but the last in rack b1."""
    verbs = worlds.operations(about=device("d0", board="Simulated", labels={"rack": "b1"}))
    for number in range(1, count):
        rack = "b2" if number == count - 1 else "b1"
        verbs.loop.register(device(f"d{number}", board="Simulated", labels={"rack": rack}))
    return verbs


def draft(text: str = WEB, **given: object) -> FleetDraft:
    return FleetDraft(lines=tuple(text.splitlines()), who="ann", **given)  # type: ignore[arg-type]


def actions(diff: FleetDiff) -> list[tuple[str, tuple[str, ...]]]:
    return [(change.action, change.devices) for change in diff.changes]


def test_a_file_applied_twice_changes_nothing() -> None:
    verbs = fleet()
    seen = verbs.diff_fleet(draft())
    assert verbs.studies() == [], "a diff changes nothing"
    assert actions(seen) == [("create", ("d0",)), ("create", ("d1",))]
    assert verbs.apply_fleet(draft(expects=seen.fingerprint)) == seen
    again = verbs.apply_fleet(draft())
    assert (again.changes, again.same) == ((), 2)
    studies = {study.devices: study for study in verbs.studies()}
    assert studies["d0",].constraints == ("latency_p99_ms <= 1.2x baseline",)
    assert studies["d1",].constraints == ("latency_p99_ms <= 200.0",)
    assert studies["d0",].group == "web"
    assert seen.digest in verbs.revisions(studies["d0",].id)[0].why


def test_changeable_fields_keep_a_study_and_others_replace_it() -> None:
    verbs = fleet()
    verbs.apply_fleet(draft())
    before = {study.devices: study.id for study in verbs.studies()}
    tighter = WEB.replace("<= 200", "<= 150").replace("hours = 4", "hours = 2")
    changed = verbs.apply_fleet(draft(tighter))
    assert actions(changed) == [("change", ("d0",)), ("change", ("d1",))]
    assert changed.changes[1].details[0] == (
        "constraints: latency_p99_ms <= 200.0 → latency_p99_ms <= 150.0"
    )
    assert {study.devices: study.id for study in verbs.studies()} == before
    longer = tighter.replace("trials = 5", "trials = 9")
    replaced = verbs.apply_fleet(draft(longer))
    assert [a for a, _ in actions(replaced)] == ["stop", "stop", "create", "create"]
    assert "terms.trials: 5 → 9" in replaced.changes[2].details
    assert not verbs.diff_fleet(draft(longer)).changes


def test_a_study_by_hand_makes_way_and_one_beside_the_file_stays() -> None:
    verbs = fleet()
    own, other = (
        verbs.create(
            StudyDraft(
                devices=(name,),
                constraints=("latency_p99_ms <= 900",),
                objective="latency_p99_ms",
                policy="scripted",
            )
        ).id
        for name in ("d0", "d2")
    )
    assert actions(verbs.apply_fleet(draft(prune=True)))[0] == ("stop", ("d0",))
    phases = {study.id: study.phase for study in verbs.studies()}
    assert phases[own] is Phase.STOPPED
    assert phases[other] is not Phase.STOPPED, "no file declared it: it is not pruned"


def test_only_pruning_stops_studies_no_longer_in_the_file() -> None:
    verbs = fleet()
    verbs.apply_fleet(draft())
    less = WEB.replace('rack = "b1"', 'rack = "b1", id = "d0"').partition("[[group.study]]")[0]
    assert verbs.diff_fleet(draft(less)).changes == ()
    pruned = verbs.apply_fleet(draft(less, prune=True))
    assert actions(pruned) == [("stop", ("d1",))]


def test_a_freeze_without_an_entry_in_the_file_stays() -> None:
    verbs = fleet()
    verbs.apply_fleet(draft())
    study = verbs.studies()[0].id
    assert verbs.freeze(study, Change(who="bob", why="black friday")).waits == (
        "frozen: black friday"
    )
    assert not verbs.diff_fleet(draft()).changes
    longer = WEB.replace("trials = 5", "trials = 9")
    verbs.apply_fleet(draft(longer))
    frozen = sorted(s.exploration.frozen for s in verbs.studies() if s.phase is not Phase.STOPPED)
    assert frozen == ["", "black friday"], "the study that replaces a frozen one is frozen"
    verbs.apply_fleet(draft())
    thawed = WEB.replace("[exploration]", '[exploration]\nfrozen = ""')
    assert [c.details for c in verbs.apply_fleet(draft(thawed)).changes] == [
        ("exploration.frozen: black friday → none",)
    ]


def test_an_apply_with_an_outdated_diff_is_refused() -> None:
    verbs = fleet()
    seen = verbs.diff_fleet(draft())
    verbs.create(StudyDraft(devices=("d0",), constraints=(), policy="scripted"))
    with pytest.raises(Conflict, match="has changed since its diff"):
        verbs.apply_fleet(draft(expects=seen.fingerprint))
    assert len(verbs.studies()) == 1


def test_an_apply_that_failed_half_way_converges_when_repeated() -> None:
    verbs = fleet(5)
    for left in (4, 3, 2, 1):
        assert len(verbs.diff_fleet(draft()).changes) == left
        with ending_after_one(), pytest.raises(KeyboardInterrupt):
            verbs.apply_fleet(draft())
    assert not verbs.diff_fleet(draft()).changes
    assert len(verbs.studies()) == 4


@contextmanager
def ending_after_one() -> Iterator[None]:
    """End the process right after the first change."""
    make = applying._make

    def once(*given: Any) -> None:  # noqa: ANN401  as given
        make(*given)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(applying, "_make", once)
        yield


def test_another_study_of_a_device_meanwhile_names_the_change_and_the_next_step() -> None:
    verbs = fleet()
    with pytest.MonkeyPatch.context() as patch:

        def late(*_: object) -> None:
            raise DeviceBusy("d0 belongs to study 1234", hint="stop that first")

        patch.setattr(applying, "store", late)
        with pytest.raises(DeviceBusy) as caught:
            verbs.apply_fleet(draft())
    assert str(caught.value) == (
        "create of d0: d0 belongs to study 1234; stop that first; then apply the file again"
    )


def test_an_exported_file_declares_the_present_fleet() -> None:
    verbs = fleet()
    verbs.apply_fleet(draft())
    text = verbs.export_fleet().text
    again = verbs.diff_fleet(draft(text))
    assert {change.details for change in again.changes} <= {
        (f"group: web → {s.id}",) for s in verbs.studies()
    }
    assert again.same + len(again.changes) == 2


def test_an_export_keeps_a_group_of_studies_that_differ() -> None:
    verbs = fleet()
    own = {"d0": Terms(trials=9), "d1": Terms()}
    for (device_id, terms), name in zip(own.items(), ("day", "night"), strict=True):
        verbs.create(
            StudyDraft(
                devices=(device_id,), name=name, group="web", constraints=(), policy="scripted",
                terms=terms, exploration=Exploration(min_saving=0.01 if terms.trials == 9 else 0.0),
            )
        )  # fmt: skip
    text = verbs.export_fleet().text
    assert text.count("[[group]]") == 1 and "the name 'night' is not exported" in text
    assert text.count("[[group.study]]") == 1
    again = verbs.diff_fleet(draft(text))
    assert (again.same, again.changes) == (2, ())


@pytest.mark.parametrize("metric", ["cost", "carbon_g"])
def test_money_and_grams_are_energy_and_need_their_series(metric: str) -> None:
    verbs = fleet()
    text = WEB.replace('name = "web"\n', f'name = "web"\nobjective = "{metric}"\n')
    with pytest.raises(ConfigError, match=rf"line \d+: .*objective.*the objective {metric} needs"):
        verbs.apply_fleet(draft(text))
    series = SeriesTable(constant=0.25)
    priced = EnergyPrice.of(TunerConfig(price_per_kwh=series, co2e_g_per_kwh=series))
    verbs = replace(verbs, price=priced)
    verbs.apply_fleet(draft(text))
    assert {s.objective for s in verbs.studies()} == {"minimize energy_j"}
    assert verbs.apply_fleet(draft(text)).changes == ()


@pytest.mark.parametrize(("then", "now", "line", "words"), WRONG)
def test_a_wrong_file_changes_nothing_and_names_line_and_key(
    then: str, now: str, line: int, words: str
) -> None:
    verbs = fleet()
    with pytest.raises(ConfigError) as caught:
        verbs.apply_fleet(draft(WEB.replace(then, now)))
    message = str(caught.value)
    assert words in message
    assert f"line {line}" in message
    assert verbs.studies() == []


def test_a_device_of_two_groups_and_a_name_twice_are_refused() -> None:
    verbs = fleet()
    two = WEB + '\n[[group]]\nname = "all"\nselect = { id = "*" }\npolicy = "scripted"\n'
    with pytest.raises(ConfigError, match=r"line 19: group 2: .*d0 is in the group 'web' already"):
        verbs.diff_fleet(draft(two))
    with pytest.raises(ConfigError, match=r"line 18: group 2: name 'web' is used twice"):
        verbs.diff_fleet(draft(two.replace('"all"', '"web"')))


def test_a_group_without_devices_is_reported() -> None:
    verbs = fleet()
    assert verbs.diff_fleet(
        draft(WEB.replace('"b1"', '"b9"').partition("[[group.study]]")[0])
    ).empty == ("web",)


def test_together_one_study_has_all_devices() -> None:
    verbs = fleet()
    text = WEB.partition("[[group.study]]")[0].replace("[[group]]", "[[group]]\ntogether = true")
    assert actions(verbs.apply_fleet(draft(text))) == [("create", ("d0", "d1"))]
    assert not verbs.diff_fleet(draft(text)).changes


def test_the_complete_example_applies_twice_and_its_schema_is_published() -> None:
    clocks = knob("gpu.mem_clock_mhz", (5001, 9501), 9501)
    space = Space((*SPACE.knobs, clocks))
    names = {"nvidia-0@gpu17": "b1", "nvidia-0@gpu18": "b2", "nvidia-0@lab-1": "b9"}
    loop = Loop(memory_store(), load_policy, Time().now)
    for name, rack in names.items():
        board = "NVIDIA A100-SXM4-80GB"
        loop.register(device(name, board=board, space=space, labels={"rack": rack}))
    verbs = Operations(loop)
    text = (ROOT / "docs/examples/fleet.toml").read_text()
    assert actions(verbs.apply_fleet(draft(text))) == [("create", (name,)) for name in names]
    assert not verbs.apply_fleet(draft(text)).changes
    studies = {study.devices[0]: study for study in verbs.studies()}
    assert studies["nvidia-0@gpu17"].constraints == ("latency_p99_ms <= 80.0",)
    assert studies["nvidia-0@gpu18"].settings == SPACE.size, "the memory's clock is fixed"
    assert studies["nvidia-0@gpu18"].waits == "waits for window Fri 2026-01-02 02:00 CET"
    assert studies["nvidia-0@lab-1"].waits == ""
    schema = json.loads((ROOT / "docs/api/fleet.schema.json").read_text())
    assert {"exploration", "group", "budget"} == schema["properties"].keys()


def test_an_export_names_only_chosen_values_and_conditions_survive() -> None:
    verbs = fleet()
    verbs.create(StudyDraft(devices=("d0",), constraints=(), policy="scripted"))
    verbs.create(
        StudyDraft(
            devices=("d1",),
            constraints=(),
            policy="scripted",
            choices={"gpu.clock_mhz": (600, 1000)},
            conditions={"batch_size": "gpu.clock_mhz > 600"},
        )
    )
    text = verbs.export_fleet().text
    chosen, plain = sorted(text.split("[[group]]")[1:], key=lambda table: "d0" in table)
    assert "choices" not in plain and "terms" not in plain
    assert 'choices = { "gpu.clock_mhz" = [600, 1000] }' in chosen
    assert 'conditions = { batch_size = "gpu.clock_mhz > 600" }' in chosen
    assert all(c.action == "change" for c in verbs.diff_fleet(draft(text)).changes)
    other = text.replace("> 600", "> 400")
    (change,) = (c for c in verbs.diff_fleet(draft(other)).changes if c.action == "create")
    assert change.details[0] == (
        "batch_size: 1, 2, 4 if gpu.clock_mhz > 600 → 1, 2, 4 if gpu.clock_mhz > 400"
    )


def test_a_fleet_file_of_more_than_5000_lines_is_refused() -> None:
    with pytest.raises(ValidationError, match="at most 5000"):
        FleetDraft(lines=("",) * 5001)
