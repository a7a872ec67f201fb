"""The contract of every store of trials."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any, cast

import pytest

from db import Store
from tests.builders import START, completed, setting, study, window
from tests.contracts.stored import trial_states
from tests.contracts.threads import together
from tests.errors import raised
from tuner.core import (
    Estimate,
    IllegalTransition,
    Limit,
    Load,
    Measurement,
    NotFound,
    Origin,
    Outcome,
    Phase,
    Plan,
    Report,
    Row,
    Scope,
    Setting,
    StaleRevision,
    Trial,
    TrialCare,
    TrialState,
)

BROKEN = Limit("latency_p99_ms", "<=", 1 / 3)
LATER = START + timedelta(minutes=1, microseconds=7)


def rich_measurement() -> Measurement:
    """Return a window in which every field is set; one estimate is bounded on neither side."""
    return Measurement(
        estimates={
            "power_w": Estimate(1 / 3, 0.1, 7, 0.2, 0.5, Origin.ESTIMATED, Scope.RAIL),
            "latency_p99_ms": Estimate(12.5, 0.0, 20, 12.5, math.inf),
            "energy_j": Estimate(1e-9),
        },
        started_at=START - timedelta(seconds=3),
        seconds=0.1,
        overhead_s=2.5,
        load=Load(2**40, 3, 0.25),
        context={"arrival_rate_per_s": 99.5, "decoding_requests": 0.1},
        throttled=("thermal", "power"),
        foreign=0.01,
        sources={"energy_j": "integrated power", "latency_p99_ms": "our load generator"},
    )


def begin(store: Store, name: str = "s1") -> Trial:
    return store.trials.begin(name, setting(), Phase.TUNING, "because", START)


def report(**changes: object) -> Report:
    fields: dict[str, object] = {
        "study": "s1",
        "trial": 1,
        "device": "sim",
        "attempt": 1,
        "token": 1,
        "nonce": "n1",
        "outcome": completed(),
        "received_at": START,
    }
    return Report(**{**fields, **changes})  # type: ignore[arg-type]


class TrialsContract:
    @pytest.fixture(autouse=True)
    def _study(self, store: Store) -> None:
        store.studies.add(study(), "ann", "")

    def test_one_of_several_decisions_on_the_same_trials_begins_a_trial(self, store: Store) -> None:
        def taken(_: int) -> bool:
            try:
                store.trials.begin("s1", setting(), Phase.TUNING, "", START, seen=(1, 0))
            except StaleRevision:
                return False
            return True

        assert sum(together(taken)) == 1
        assert [t.number for t in store.trials.list("s1")] == [1]

    def test_a_step_for_a_study_that_was_revised_since_is_not_taken(self, store: Store) -> None:
        store.studies.revise(store.studies.get("s1"), "ann", "", START)
        with pytest.raises(StaleRevision):
            store.trials.begin("s1", setting(), Phase.TUNING, "", START, seen=(1, 0))
        assert store.trials.count("s1") == 0
        assert store.trials.begin("s1", setting(), Phase.TUNING, "", START, seen=(2, 0)).number == 1

    def test_a_begun_trial_runs(self, store: Store) -> None:
        mixed: Setting = {"on": True, "count": 1, "ratio": 1.0, "name": "größe"}
        trial = store.trials.begin("s1", mixed, Phase.BASELINE, "to compare with", START)
        assert trial == Trial(
            number=1,
            setting=mixed,
            phase=Phase.BASELINE,
            started_at=START,
            why="to compare with",
        )
        (kept,) = store.trials.list("s1")
        assert kept == trial
        assert [type(v) for v in kept.setting.values()] == [bool, int, float, str]
        assert trial_states(store, "s1", 1) == ((TrialState.RUNNING, 1, START),)

    def test_the_requested_load_of_a_trial_is_stored(self, store: Store) -> None:
        load = {"requests_in_system": 8, "price": -0.125}
        trial = store.trials.begin("s1", setting(), Phase.TUNING, "", START, load)
        whatever = begin(store)
        assert (trial.context, whatever.context) == (load, {})
        store.trials.end("s1", trial.number, completed(), LATER)
        assert [t.context for t in store.trials.list("s1")] == [load, {}]

    def test_a_trial_of_one_device_keeps_its_name(self, store: Store) -> None:
        alone = store.trials.begin("s1", setting(), Phase.TUNING, "", START, device="sim")
        shared = begin(store)
        assert (alone.device, shared.device) == ("sim", "")
        store.trials.end("s1", alone.number, completed(), LATER)
        assert [t.device for t in store.trials.list("s1")] == ["sim", ""]
        assert [t.device for t in store.trials.running("s1")] == [""]
        assert [t.number for _, t in store.trials.latest(9, device="sim")] == [2, 1]
        assert [t.number for _, t in store.trials.latest(9, device="other")] == [2]

    def test_the_table_that_is_followed_is_kept(self, store: Store) -> None:
        rows = (Row(2.5, setting(600), at=2.0), Row(math.inf, setting(), 0.5, 8.0))
        table = Plan(rows, "decoding_requests", 0.2, eager=True)
        at = rows[0].setting, Phase.CONFIRMING, "", START
        followed = store.trials.begin("s1", *at, table.crossing(1.0, 10.0), plan=table)
        assert begin(store).plan is None
        store.trials.end("s1", followed.number, completed(), LATER)
        assert [t.plan for t in store.trials.list("s1")] == [table, None]
        assert not store.trials.list("s1")[0].tries(rows[0].setting), "it is no trial of one row"

    @pytest.mark.parametrize("among", [None, ("s1",), ("s1", "s2"), ()])
    @pytest.mark.parametrize("device", [None, "sim", "other"])
    def test_the_latest_are_by_start_for_any_query(
        self, store: Store, among: tuple[str, ...] | None, device: str | None
    ) -> None:
        store.studies.add(study(id="s2", devices=("other",)), "ann", "")
        begun = ((3, "s1", ""), (1, "s1", "sim"), (2, "s2", ""),
                 (2, "s1", ""), (5, "s2", "other"), (4, "s1", ""))  # fmt: skip
        for minute, name, alone in begun:
            at = START + timedelta(minutes=minute)
            trial = store.trials.begin(name, setting(), Phase.TUNING, "", at, device=alone)
            store.trials.end(name, trial.number, completed(), at)
        where = (("s2", 2), ("s1", 4), ("s1", 1), ("s2", 1), ("s1", 3), ("s1", 2))
        hidden = {"sim": ("s2", 2), "other": ("s1", 2)}.get(device or "")
        wanted = [w for w in where if (among is None or w[0] in among) and w != hidden]
        pages = [
            [(name, t.number) for name, t in store.trials.latest(2, skip, among, device=device)]
            for skip in (0, 2, 4, 6)
        ]
        assert pages == [wanted[n : n + 2] for n in (0, 2, 4, 6)]
        since, until = START + timedelta(minutes=2), START + timedelta(minutes=4)
        between = store.trials.latest(
            9, 0, among, since, until, TrialState.COMPLETED, device=device
        )
        assert [(name, t.number) for name, t in between] == [
            w for w in wanted if w in (("s1", 1), ("s2", 1), ("s1", 3))
        ]
        assert not store.trials.latest(9, 0, among, state=TrialState.RUNNING, device=device)

    def test_trials_are_counted_per_study_from_one(self, store: Store) -> None:
        store.studies.add(study(id="s2", devices=("other",)), "ann", "")
        numbers = [begin(store, name).number for name in ("s1", "s1", "s2", "s1")]
        assert numbers == [1, 2, 1, 3]
        assert [t.number for t in store.trials.list("s1")] == [1, 2, 3]

    def test_trials_begun_at_once_get_consecutive_numbers(self, store: Store) -> None:
        numbers = together(lambda _: [begin(store).number for _ in range(5)])
        assert sorted(n for some in numbers for n in some) == list(range(1, 41))
        assert [t.number for t in store.trials.list("s1")] == list(range(1, 41))

    def test_trials_that_have_not_ended_are_listed_separately(self, store: Store) -> None:
        store.studies.add(study(id="s2", devices=("other",)), "ann", "")
        for name in ("s1", "s1", "s2", "s1"):
            begin(store, name)
        store.trials.end("s1", 1, completed(), LATER)
        third = store.trials.restart("s1", 3, LATER)
        assert store.trials.running("s1") == (store.trials.list("s1")[1], third)
        assert (store.trials.count("s1"), store.trials.count("s2")) == (3, 1)
        for number in (2, 3):
            store.trials.end("s1", number, Outcome(state=TrialState.ABORTED), LATER)
        assert store.trials.running("s1") == ()
        assert store.trials.count("s1") == 3

    def test_trials_that_have_not_ended_are_listed_with_their_leases(self, store: Store) -> None:
        store.studies.add(study(id="s0", devices=("other",)), "ann", "")
        assert store.trials.at_work() == ()
        trials = [(name, begin(store, name)) for name in ("s0", "s1", "s1")]
        held = store.leases.grant("sim", "s1", trials[1][1], "host/1", LATER)
        store.leases.grant("other", "s1", trials[1][1], "host/1", LATER)
        leases = [held, store.leases.get("other")]
        assert store.trials.at_work() == tuple(TrialCare.of(*each, leases) for each in trials)
        renewed = store.leases.renew("sim", held.token, held.nonce, LATER + timedelta(seconds=1))
        assert TrialCare.of(*trials[1], [renewed, leases[1]]) == store.trials.at_work()[1]
        store.trials.report(report(trial=1, late=True))
        assert not store.trials.at_work()[1].reported
        store.trials.report(report(trial=1, token=2))
        assert [one.reported for one in store.trials.at_work()] == [False, True, False]
        for number in (1, 2):
            store.trials.end("s1", number, completed(), LATER)
        assert [(one.study, one.trial) for one in store.trials.at_work()] == [("s0", 1)]

    def test_trials_are_listed_from_a_number_on(self, store: Store) -> None:
        trials = [begin(store) for _ in range(3)]
        store.trials.end("s1", 2, completed(), LATER)
        assert [t.number for t in store.trials.list("s1", 2)] == [2, 3]
        assert store.trials.list("s1", 2) == store.trials.list("s1")[1:]
        assert store.trials.list("s1", len(trials) + 1) == ()

    def test_the_trials_at_a_setting_are_those_that_equal_it(self, store: Store) -> None:
        store.studies.add(study(id="s2", devices=("other",)), "ann", "")
        tried: list[Setting] = [
            {"count": 1, "name": "größe"},
            {"count": 2, "name": "größe"},
            {"name": "größe", "count": 1},
            {"count": 1.0, "name": "größe"},
        ]
        for at in tried:
            store.trials.begin("s1", at, Phase.TUNING, "", START)
        store.trials.begin("s2", tried[0], Phase.TUNING, "", START)
        store.trials.end("s1", 3, completed(), LATER)
        whole = store.trials.list("s1")
        for at in tried:
            expected = tuple(trial for trial in whole if trial.tries(at))
            assert store.trials.tried("s1", at) == expected
        assert [t.number for t in store.trials.tried("s1", tried[0])][:2] == [1, 3]
        assert store.trials.tried("s1", {"count": 3, "name": "größe"}) == ()
        assert store.trials.tried("nobody", tried[0]) == ()

    def test_unknown_studies_and_trials_are_not_found(self, store: Store) -> None:
        with raised(NotFound, "nobody"):
            begin(store, "nobody")
        with raised(NotFound, "trial 1"):
            store.trials.restart("s1", 1, LATER)
        with raised(NotFound, "trial 1"):
            store.trials.end("s1", 1, completed(), LATER)
        with raised(NotFound, "trial 1"):
            store.trials.report(report())
        assert store.trials.list("nobody") == store.trials.running("nobody") == ()
        assert store.trials.count("nobody") == 0
        assert store.trials.reports("s1", 1) == ()
        assert trial_states(store, "s1", 1) == ()

    @pytest.mark.parametrize(
        "outcome",
        [
            Outcome(state=TrialState.COMPLETED, measurement=rich_measurement(), broke=BROKEN),
            Outcome(state=TrialState.INCONCLUSIVE, measurement=window(), reason="too few"),
            Outcome(state=TrialState.CONTAMINATED, measurement=window(), reason="foreign load"),
            Outcome(state=TrialState.FAILED, reason="the driver refused"),
            Outcome(state=TrialState.ABORTED),
        ],
        ids=lambda outcome: str(outcome.state),
    )
    def test_an_ended_trial_shows_its_outcome(self, store: Store, outcome: Outcome) -> None:
        trial = begin(store)
        ended = store.trials.end("s1", 1, outcome, LATER)
        assert ended == trial.ended(outcome, LATER)
        assert store.trials.list("s1") == (ended,)
        assert trial_states(store, "s1", 1)[-1] == (outcome.state, 1, LATER)

    def test_metrics_keep_their_order(self, store: Store) -> None:
        begin(store)
        outcome = Outcome(state=TrialState.COMPLETED, measurement=rich_measurement())
        store.trials.end("s1", 1, outcome, LATER)
        kept = store.trials.list("s1")[0].measurement
        assert kept is not None
        assert list(kept.estimates) == list(rich_measurement().estimates)

    def test_a_trial_ends_once(self, store: Store) -> None:
        begin(store)
        ended = store.trials.end("s1", 1, completed(), LATER)
        with pytest.raises(IllegalTransition):
            store.trials.end("s1", 1, Outcome(state=TrialState.FAILED), LATER)
        with pytest.raises(IllegalTransition):
            store.trials.restart("s1", 1, LATER)
        assert store.trials.list("s1") == (ended,)
        assert len(trial_states(store, "s1", 1)) == 2

    def test_one_of_several_ends_of_a_trial_succeeds(self, store: Store) -> None:
        begin(store)

        def end(index: int) -> bool:
            try:
                store.trials.end("s1", 1, completed(energy_j=index + 1.0), LATER)
            except IllegalTransition:
                return False
            return True

        won = together(end)
        assert sum(won) == 1
        kept = store.trials.list("s1")[0].measurement
        assert kept is not None and kept.estimates["energy_j"].mean == won.index(True) + 1.0

    def test_attempts_are_counted_and_remembered(self, store: Store) -> None:
        trial = begin(store)
        assert store.trials.restart("s1", 1, LATER) == replace(trial, attempt=2)
        store.trials.end("s1", 1, completed(), LATER + timedelta(seconds=1))
        assert store.trials.list("s1")[0].attempt == 2
        assert trial_states(store, "s1", 1) == (
            (TrialState.RUNNING, 1, START),
            (TrialState.RUNNING, 2, LATER),
            (TrialState.COMPLETED, 2, LATER + timedelta(seconds=1)),
        )

    def test_changing_a_value_handed_in_or_out_changes_nothing_stored(self, store: Store) -> None:
        mine = dict(setting())
        begun = store.trials.begin("s1", mine, Phase.TUNING, "", START)
        estimates = {"energy_j": Estimate(1.0)}
        outcome = Outcome(
            state=TrialState.COMPLETED,
            measurement=Measurement(estimates=estimates, started_at=START, seconds=1.0),
        )
        ended = store.trials.end("s1", 1, outcome, LATER)
        mine["batch_size"] = 4
        estimates.clear()
        assert ended.measurement is not None
        for handed in (begun.setting, ended.setting, ended.measurement.estimates):
            cast("dict[str, Any]", handed)["gpu.clock_mhz"] = 0
        (kept,) = store.trials.list("s1")
        assert kept.setting == setting()
        assert kept.measurement is not None
        assert kept.measurement.estimates == {"energy_j": Estimate(1.0)}

    def test_times_of_any_zone_are_the_same_moments(self, store: Store) -> None:
        zone = timezone(timedelta(hours=-7, minutes=-30))
        store.trials.begin("s1", setting(), Phase.TUNING, "", START.astimezone(zone))
        store.trials.end("s1", 1, completed(), LATER.astimezone(zone))
        (kept,) = store.trials.list("s1")
        assert (kept.started_at, kept.ended_at) == (START, LATER)
        assert kept.started_at.utcoffset() is not None


class ReportsContract:
    @pytest.fixture(autouse=True)
    def _trial(self, store: Store) -> None:
        store.studies.add(study(), "ann", "")
        begin(store)

    def test_a_report_comes_back_as_it_arrived(self, store: Store) -> None:
        outcome = Outcome(
            state=TrialState.COMPLETED, measurement=rich_measurement(), broke=BROKEN, reason="slow"
        )
        sent = report(outcome=outcome, attempt=3, token=2**40, received_at=LATER)
        assert store.trials.report(sent) is True
        assert store.trials.reports("s1", 1) == (sent,)

    def test_a_report_without_numbers_is_kept(self, store: Store) -> None:
        sent = report(outcome=Outcome(state=TrialState.FAILED, reason="the meter gave nothing"))
        store.trials.report(sent)
        assert store.trials.reports("s1", 1) == (sent,)

    def test_the_same_report_is_kept_once(self, store: Store) -> None:
        assert store.trials.report(report()) is True
        again = report(outcome=Outcome(state=TrialState.FAILED), received_at=LATER)
        assert store.trials.report(again) is False
        assert store.trials.reports("s1", 1) == (report(),)

    def test_the_same_report_sent_at_once_is_kept_once(self, store: Store) -> None:
        assert sum(together(lambda _: store.trials.report(report()))) == 1
        assert store.trials.reports("s1", 1) == (report(),)

    def test_reports_of_other_devices_tokens_and_nonces_are_others(self, store: Store) -> None:
        sent = [report(token=2), report(token=1), report(nonce="n2"), report(device="b")]
        assert all(store.trials.report(one) for one in sent)
        assert list(store.trials.reports("s1", 1)) == sent

    def test_late_reports_are_kept_and_close_nothing(self, store: Store) -> None:
        ended = store.trials.end("s1", 1, Outcome(state=TrialState.ABORTED), LATER)
        late = report(late=True, received_at=LATER + timedelta(days=1))
        assert store.trials.report(late) is True
        assert store.trials.reports("s1", 1) == (late,)
        assert store.trials.list("s1") == (ended,)
