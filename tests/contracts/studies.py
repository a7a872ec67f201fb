"""The contract of every store of studies."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest
from sqlalchemy import create_engine, text

from db import Store
from db.sql.address import read_url
from tests.builders import START, applied, completed, device, setting, study, window
from tests.contracts.stored import trial_states
from tests.contracts.threads import together
from tests.errors import raised
from tuner.core import (
    Conflict,
    Constraint,
    DeviceBusy,
    FleetStop,
    Knob,
    Mode,
    NotFound,
    Objective,
    Observation,
    Outcome,
    Part,
    Phase,
    Plan,
    Report,
    Row,
    Signal,
    Situation,
    Space,
    StaleRevision,
    Study,
    StudyStamp,
    Terms,
    TrialState,
    Unreadable,
    UnreadableStudy,
)

LATER = START + timedelta(hours=1)


def rich_study() -> Study:
    """Return a study in which every field is set, with values of every type."""
    space = Space(
        (
            Knob("turbo", (False, True), False),
            Knob("voltage_v", (0.5, 0.75, 1.0), 1.0),
            Knob("governor", ("powersave", "performance"), "performance", Part.WORKLOAD),
        ),
        (
            {"turbo": False, "voltage_v": 1.0, "governor": "performance"},
            {"turbo": True, "voltage_v": 0.5, "governor": "powersave"},
        ),
    )
    rows = (Row(10.5, space.only[1], 0.5, 1 / 3), Row(float("inf"), space.only[0]))
    plan = Plan(rows, "arrival_rate_per_s")
    return Study(
        id="rich",
        devices=("b", "a"),
        workload="w",
        space=space,
        objective=Objective("throughput_per_s", "maximize"),
        signals=(Signal("arrival_rate_per_s", "1/s"), Signal("requests_in_system", askable=True)),
        constraints=(Constraint.parse("energy_j <= 3"), Constraint.parse("power_w<=1.1xbaseline")),
        policy="sobol",
        seed=2**70,
        terms=Terms(trials=7, window_s=1.5, allow_estimated=True, mode=Mode.CONTINUOUS),
        phase=Phase.PAUSED,
        paused_from=Phase.HOLDING,
        plan=plan,
        since_trial=3,
        phase_since=5,
        created_at=START,
    )


class StudiesContract:
    def test_a_studys_stamp_changes_with_everything_new_in_it(self, store: Store) -> None:
        store.studies.add(study(id="b", devices=("b",), created_at=LATER), "ann", "")
        store.studies.add(study(id="a"), "ann", "")
        assert list(store.studies.stamps()) == ["a", "b"]
        stamps = [store.studies.stamps()["a"]]
        assert stamps == [StudyStamp(START, 1, 0, 0)]
        store.trials.begin("a", setting(), Phase.TUNING, "", START)
        stamps.append(store.studies.stamps()["a"])
        store.trials.end("a", 1, completed(), START)
        stamps.append(store.studies.stamps()["a"])
        store.studies.revise(store.studies.get("a"), "ann", "", LATER)
        stamps.append(store.studies.stamps()["a"])
        assert len(set(stamps)) == 4 and stamps[-1] == StudyStamp(START, 2, 1, 0)
        assert store.studies.stamps()["b"] == StudyStamp(LATER, 1, 0, 0)

    def test_a_study_comes_back_as_it_was_stored(self, store: Store) -> None:
        store.studies.add(rich_study(), "ann", "to save energy")
        stored = store.studies.get("rich")
        assert stored == rich_study()
        assert type(stored.space.knob("turbo").values[0]) is bool
        assert type(stored.space.knob("voltage_v").values[2]) is float

    def test_changing_a_value_handed_in_or_out_changes_nothing_stored(self, store: Store) -> None:
        mine = {"turbo": True}
        space = Space((Knob("turbo", (True, False), True),), (mine, {"turbo": False}))
        store.studies.add(study(space=space), "ann", "")
        mine["turbo"] = False
        store.studies.get("s1").space.only[0]["turbo"] = 5  # type: ignore[index]
        assert store.studies.get("s1").space.only[0] == {"turbo": True}

    def test_studies_are_listed_by_device_by_id_and_as_far_as_they_are_active(
        self, store: Store
    ) -> None:
        for name, devices in {"a": ("x", "y"), "b": ("z",), "c": ("w",)}.items():
            store.studies.add(study(Phase.TUNING, id=name, devices=devices), "ann", "")
        store.studies.revise(store.studies.get("a").moved(Phase.STOPPED), "ann", "", LATER)
        store.studies.add(study(Phase.TUNING, id="d", devices=("x",)), "ann", "")

        def listed(**asked: Any) -> list[str]:  # noqa: ANN401
            return [found.id for found in store.studies.stored(**asked)]

        assert listed(device="x") == ["a", "d"]
        assert listed(among=["c", "a", "none"]) == ["a", "c"]
        assert listed(active=True) == ["b", "c", "d"]
        assert listed(device="x", active=True) == ["d"]
        assert listed(device="nobody") == listed(among=[]) == []
        assert [s.id for s in store.studies.list(among=["c", "a", "none"])] == ["a", "c"]
        assert store.studies.phases()["a"][0] is Phase.STOPPED

    def test_studies_are_named_by_device_by_workload_and_while_active(self, store: Store) -> None:
        for name, devices, workload in (
            ("s1", ("a",), "w"),
            ("s2", ("b",), "v"),
            ("s3", ("c",), "w"),
        ):
            store.studies.add(study(id=name, devices=devices, workload=workload), "me", "because")
        assert store.studies.ids("a") == ("s1",)
        assert store.studies.ids(workload="w") == ("s1", "s3")
        store.studies.add(study(id="s4", devices=("d",), group="lab"), "me", "because")
        assert store.studies.ids(group="lab") == ("s4",)
        assert store.studies.ids("a", group="lab") == store.studies.ids(group="nobody") == ()
        store.studies.revise(replace(store.studies.get("s4"), group="hall"), "me", "", LATER)
        assert store.studies.ids(group="lab") == ()
        store.studies.revise(store.studies.get("s4").moved(Phase.STOPPED), "me", "", LATER)
        store.studies.delete("s4")
        assert store.studies.ids("b", "w") == store.studies.ids("nobody") == ()
        assert store.studies.ids() == ("s1", "s2", "s3")
        paused = store.studies.get("s2").moved(Phase.PAUSED)
        store.studies.revise(paused, "me", "", LATER)
        store.studies.revise(store.studies.get("s3").moved(Phase.STOPPED), "me", "", LATER)
        assert store.studies.phases() == {
            "s1": (Phase.TUNING, 1), "s2": (Phase.PAUSED, 2), "s3": (Phase.STOPPED, 2)
        }  # fmt: skip

    def test_the_window_lengths_of_devices_in_active_studies_are_returned(
        self, store: Store
    ) -> None:
        store.studies.add(study(devices=("a", "b")), "me", "because")
        stopped = study(id="s2", devices=("c",))
        store.studies.add(stopped, "me", "because")
        assert store.studies.windows_s(["a", "b", "c"]) == {"a": 10.0, "b": 10.0, "c": 10.0}
        store.studies.revise(stopped.moved(Phase.STOPPED), "me", "", LATER)
        assert store.studies.windows_s(["a", "c", "nobody"]) == {"a": 10.0}

    def test_the_studies_that_hold_are_named_oldest_first(self, store: Store) -> None:
        for number, name in enumerate(("b", "a", "c")):
            at = START + timedelta(minutes=number)
            made = study(Phase.TUNING, id=name, devices=(name,), created_at=at)
            store.studies.add(made, "ann", "")
            if name != "c":
                held = store.studies.get(name).moved(Phase.HOLDING, Plan.single(setting()))
                store.studies.revise(held, "ann", "", LATER)
        assert list(store.studies.ids(phase=Phase.HOLDING.value)) == ["b", "a"]

    def test_revise_returns_a_copy(self, store: Store) -> None:
        held = cast("dict[str, Any]", setting())
        store.studies.add(study(), "ann", "")
        moved = study(phase=Phase.TUNING).moved(Phase.HOLDING, Plan.single(held))
        store.studies.revise(moved, "ann", "", LATER)
        held["batch_size"] = 4
        assert store.studies.get("s1").plan == Plan.single(setting())

    def test_an_unknown_study_is_not_found(self, store: Store) -> None:
        calls = (
            store.studies.get,
            store.studies.revisions,
            store.studies.latest,
            store.studies.delete,
        )
        for ask in calls:
            with raised(NotFound, "nobody"):
                ask("nobody")
        with raised(NotFound, "s1"):
            store.studies.revise(study(), "ann", "", LATER)

    def test_an_id_is_given_once(self, store: Store) -> None:
        store.studies.add(study(), "ann", "")
        with raised(Conflict, "s1") as caught:
            store.studies.add(study(devices=("other",)), "bob", "")
        assert not isinstance(caught.value, DeviceBusy)
        assert [r.who for r in store.studies.revisions("s1")] == ["ann"]

    def test_studies_are_listed_oldest_first(self, store: Store) -> None:
        for name, hours in (("b", 2), ("c", 0), ("a", 2)):
            made = study(id=name, devices=(name,), created_at=START + timedelta(hours=hours))
            store.studies.add(made, "ann", "")
        assert [s.id for s in store.studies.list()] == ["c", "a", "b"]

    def test_a_new_study_always_has_revision_one(self, store: Store) -> None:
        store.studies.add(study(revision=9), "ann", "first")
        assert store.studies.get("s1").revision == 1

    def test_every_revision_is_kept(self, store: Store) -> None:
        store.studies.add(study(), "ann", "first")
        tighter = replace(study(), constraints=(Constraint.parse("latency_p99_ms <= 90"),))
        second = store.studies.revise(tighter, "bob", "tighter", LATER)
        stopped = store.studies.revise(second.moved(Phase.STOPPED), "ann", "enough", LATER)
        assert second == replace(tighter, revision=2)
        assert (
            store.studies.get("s1") == stopped == replace(second, phase=Phase.STOPPED, revision=3)
        )
        revisions = [(r.who, r.why, r.at, r.study) for r in store.studies.revisions("s1")]
        assert revisions == [
            ("ann", "first", START, study()),
            ("bob", "tighter", LATER, second),
            ("ann", "enough", LATER, stopped),
        ]
        assert store.studies.latest("s1") == store.studies.revisions("s1")[-1]
        assert [s.revision for s in store.studies.list()] == [3]

    def test_a_change_to_an_older_revision_is_refused(self, store: Store) -> None:
        store.studies.add(study(), "ann", "")
        store.studies.revise(replace(study(), seed=1), "ann", "", LATER)
        with raised(StaleRevision, "revision 2"):
            store.studies.revise(replace(study(), seed=2), "bob", "", LATER)
        assert store.studies.get("s1").seed == 1
        assert len(store.studies.revisions("s1")) == 2

    def test_one_of_several_changes_of_the_same_revision_succeeds(self, store: Store) -> None:
        store.studies.add(study(), "ann", "")

        def change(index: int) -> bool:
            try:
                store.studies.revise(replace(study(), seed=index + 1), f"{index}", "", LATER)
            except Conflict:
                return False
            return True

        won = together(change)
        assert sum(won) == 1
        assert store.studies.get("s1").seed == won.index(True) + 1
        assert len(store.studies.revisions("s1")) == 2


class DeviceOwnershipContract:
    def test_a_device_belongs_to_one_active_study(self, store: Store) -> None:
        store.studies.add(study(id="first", devices=("a", "b")), "ann", "")
        with raised(DeviceBusy, "b", "first"):
            store.studies.add(study(id="second", devices=("b", "c")), "bob", "")
        assert [s.id for s in store.studies.list()] == ["first"]
        store.studies.add(study(id="third", devices=("c",)), "bob", "")

    def test_the_active_study_of_a_device_is_found(self, store: Store) -> None:
        assert store.studies.of("sim") is None
        store.studies.add(study(), "test", "created")
        assert store.studies.of("sim") == store.studies.get("s1")
        assert store.studies.of("other") is None
        store.studies.revise(store.studies.get("s1").moved(Phase.STOPPED), "test", "stop", START)
        assert store.studies.of("sim") is None

    def test_the_data_of_an_order_are_of_one_moment(self, store: Store) -> None:
        with pytest.raises(NotFound):
            store.studies.situation("sim")
        store.devices.put(device())
        assert store.studies.situation("sim") == Situation()
        for at in (600, 800):
            store.devices.apply(applied(at=setting(at)))
        store.studies.add(study(), "me", "because")
        created = store.studies.get("s1")
        store.trials.begin("s1", setting(), Phase.TUNING, "", START)
        situation = store.studies.situation("sim")
        assert situation == Situation(
            applied=applied(at=setting(800)),
            study=created,
            since=created.created_at,
            trials=1,
            running=True,
        )
        store.trials.end("s1", 1, completed(1.0, 1.0), LATER)
        store.stops.order(FleetStop(at=START, who="me"))
        revised = store.studies.revise(created.moved(Phase.PAUSED), "me", "", LATER)
        situation = store.studies.situation("sim")
        assert (situation.study, situation.since, situation.trials) == (revised, LATER, 1)
        assert (situation.running, situation.stopped) == (False, True)
        store.studies.revise(revised.moved(Phase.STOPPED), "me", "", LATER)
        assert store.studies.situation("sim").study is None

    def test_a_stopped_study_frees_its_devices(self, store: Store) -> None:
        store.studies.add(study(id="first"), "ann", "")
        stopped = store.studies.get("first").moved(Phase.STOPPED)
        store.studies.revise(stopped, "ann", "", LATER)
        store.studies.add(study(id="second"), "bob", "")
        again = replace(store.studies.get("first"), phase=Phase.TUNING)
        with raised(DeviceBusy, "second"):
            store.studies.revise(again, "ann", "", LATER)
        assert store.studies.get("first").phase is Phase.STOPPED

    def test_a_paused_study_keeps_its_devices(self, store: Store) -> None:
        store.studies.add(study(id="first"), "ann", "")
        store.studies.revise(store.studies.get("first").moved(Phase.PAUSED), "ann", "", LATER)
        with raised(DeviceBusy, "first"):
            store.studies.add(study(id="second"), "bob", "")

    def test_a_study_may_exchange_its_devices(self, store: Store) -> None:
        store.studies.add(study(id="first", devices=("a", "b")), "ann", "")
        changed = replace(store.studies.get("first"), devices=("c", "a"))
        store.studies.revise(changed, "ann", "", LATER)
        store.studies.add(study(id="second", devices=("b",)), "bob", "")
        assert store.studies.get("first").devices == ("c", "a")

    def test_if_several_claim_one_device_at_once_one_gets_it(self, store: Store) -> None:
        def claim(index: int) -> bool:
            names = ("shared", f"own{index}") if index % 2 else (f"own{index}", "shared")
            try:
                store.studies.add(study(id=f"s{index}", devices=names), "ann", "")
            except DeviceBusy as busy:
                assert "'shared'" in str(busy)
                return False
            return True

        won = together(claim)
        assert sum(won) == 1
        assert [s.id for s in store.studies.list()] == [f"s{won.index(True)}"]


class StudyDeletionContract:
    def test_an_active_study_is_not_deleted(self, store: Store) -> None:
        store.studies.add(study(), "ann", "")
        store.trials.begin("s1", setting(), Phase.TUNING, "", START)
        with raised(Conflict, "active"):
            store.studies.delete("s1")
        assert len(store.trials.list("s1")) == 1

    def test_everything_that_belongs_to_a_study_is_deleted_with_it(self, store: Store) -> None:
        for name in ("s1", "s2"):
            self._fill(store, name)
        store.studies.revise(store.studies.get("s1").moved(Phase.STOPPED), "ann", "", LATER)
        store.studies.delete("s1")
        assert [s.id for s in store.studies.list()] == ["s2"]
        assert store.trials.list("s1") == () and len(store.trials.list("s2")) == 1
        assert store.trials.reports("s1", 1) == () and len(store.trials.reports("s2", 1)) == 1
        assert trial_states(store, "s1", 1) == () and len(trial_states(store, "s2", 1)) == 2
        assert store.observations.list("s1") == () and len(store.observations.list("s2")) == 1
        assert store.leases.get("s1") is None and store.leases.get("s2") is not None

    def test_a_deleted_studys_id_is_free_and_its_trials_count_from_one(self, store: Store) -> None:
        self._fill(store, "s1")
        store.studies.revise(store.studies.get("s1").moved(Phase.STOPPED), "ann", "", LATER)
        store.studies.delete("s1")
        store.studies.add(study(devices=("s1",)), "bob", "again")
        assert [r.who for r in store.studies.revisions("s1")] == ["bob"]
        trial = store.trials.begin("s1", setting(), Phase.TUNING, "", START)
        assert trial.number == 1 and trial.state is TrialState.RUNNING
        assert store.trials.reports("s1", 1) == ()
        assert store.leases.grant("s1", "s1", trial, "agent", LATER).token == 2

    @staticmethod
    def _fill(store: Store, name: str) -> None:
        store.studies.add(study(id=name, devices=(name,)), "ann", "")
        trial = store.trials.begin(name, setting(), Phase.TUNING, "", START)
        store.leases.grant(name, name, trial, "agent", LATER)
        outcome: Outcome = completed()
        store.trials.report(
            Report(
                study=name,
                trial=1,
                device=name,
                attempt=1,
                token=1,
                nonce="n",
                outcome=outcome,
                received_at=START,
            )
        )
        store.trials.end(name, 1, outcome, START)
        store.observations.add_all(
            [
                Observation(
                    study=name, device=name, setting=setting(), measurement=window(), at=START
                )
            ]
        )


NEWER = '{"id": "hurt", "release": 99}'
"""A document as a newer release may write it: valid JSON with unknown keys."""


class UnreadableStudiesContract:
    """The contract of a store in a database to which other programs write; `url` is its URL."""

    def _hurt(self, store: Store, url: str, document: str) -> None:
        store.studies.add(study(id="good", devices=("a",)), "ann", "")
        store.studies.add(
            study(id="hurt", devices=("b", "c"), phase=Phase.BASELINE, created_at=LATER), "ann", ""
        )
        for name in "abc":
            store.devices.put(device(name))
        engine = create_engine(read_url(url))
        with engine.begin() as connection:
            change = text("UPDATE study_revisions SET document = :document WHERE study_id = 'hurt'")
            connection.execute(change, {"document": document})
        engine.dispose()

    @pytest.mark.parametrize("document", [NEWER, "[]", "null"])
    def test_a_row_that_cannot_be_read_leaves_the_others_as_they_are(
        self, store: Store, url: str, document: str
    ) -> None:
        self._hurt(store, url, document)
        assert [s.id for s in store.studies.list()] == ["good"]
        good, hurt = store.studies.stored()
        assert isinstance(good, Study) and isinstance(hurt, UnreadableStudy)
        assert (hurt.id, hurt.devices, hurt.phase) == ("hurt", ("b", "c"), Phase.BASELINE)
        assert hurt.active and hurt.created_at == LATER and "cannot be read" in hurt.error
        assert [s.id for s in store.studies.stored(device="c", active=True)] == ["hurt"]
        assert set(store.studies.windows_s(("a", "b", "c"))) == {"a"}
        for read in (store.studies.get, store.studies.latest, store.studies.revisions):
            with raised(Unreadable, "hurt"):
                read("hurt")

    @pytest.mark.parametrize("document", [NEWER, "[]", "null"])
    def test_it_is_ended_for_every_release(self, store: Store, url: str, document: str) -> None:
        self._hurt(store, url, document)
        (hurt,) = (s for s in store.studies.stored() if isinstance(s, UnreadableStudy))
        store.studies.end_unreadable(hurt, "ann", "enough", LATER)
        (ended,) = store.studies.stored(among=["hurt"])
        assert isinstance(ended, UnreadableStudy) and (ended.phase, ended.active) == (
            Phase.STOPPED,
            False,
        )
        store.studies.add(study(id="other", devices=("b",)), "ann", "")
        with raised(StaleRevision, "hurt"):
            store.studies.end_unreadable(hurt, "bob", "enough", LATER)
        store.studies.delete("hurt")

    @pytest.mark.parametrize("document", [NEWER, "[]"])
    def test_its_devices_have_no_orders_from_it_and_no_other_owner(
        self, store: Store, url: str, document: str
    ) -> None:
        self._hurt(store, url, document)
        assert store.studies.of("b") is None
        seen = store.studies.situation("b")
        assert seen.study is None and "cannot be read" in seen.unreadable
        assert store.studies.situation("a").study == store.studies.get("good")
        with raised(DeviceBusy, "hurt"):
            store.studies.add(study(id="other", devices=("b",)), "ann", "")
