"""The contract of the history of every store."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from datetime import timedelta

import pytest

from db import Store
from db.exports import as_csv, as_json
from db.history import HistoryQuestion, history, pareto, recent
from tests.builders import START, completed, setting, study, window
from tests.errors import raised
from tuner.core import (
    Constraint,
    Limit,
    MetricUnavailable,
    NotFound,
    Outcome,
    Phase,
    Setting,
    TrialState,
    Verdict,
)

BROKEN = Limit("latency_p99_ms", "<=", 120.0)


def tried(store: Store, name: str, at: Setting, outcome: Outcome, minute: int) -> None:
    start = START + timedelta(minutes=minute)
    phase = Phase.BASELINE if at == setting() else Phase.TUNING
    trial = store.trials.begin(name, at, phase, "to see", start)
    store.trials.end(name, trial.number, outcome, start + timedelta(seconds=30))


class HistoryContract:
    """Two studies: on `s1` the baseline and four settings, on `s2` a failure in between."""

    @pytest.fixture(autouse=True)
    def _past(self, store: Store) -> None:
        store.studies.add(study(devices=("a", "b")), "ann", "")
        store.studies.add(study(id="s2", devices=("c",), workload="training"), "ann", "")
        slow = Outcome(state=TrialState.COMPLETED, measurement=window(2, 300), broke=BROKEN)
        tried(store, "s1", setting(), completed(10, 100), 0)
        tried(store, "s2", setting(), Outcome(state=TrialState.FAILED, reason="refused"), 1)
        tried(store, "s1", setting(800), completed(8, 110), 2)
        tried(store, "s1", setting(600), completed(6, 150), 3)
        tried(store, "s1", setting(800, 2), completed(9, 115), 4)
        tried(store, "s1", setting(400), slow, 5)
        store.trials.begin("s2", setting(600), Phase.TUNING, "", START + timedelta(minutes=6))

    def test_a_trial_of_one_device_is_reported_for_it_only(self, store: Store) -> None:
        began = START + timedelta(minutes=7)
        store.trials.begin("s1", setting(500), Phase.TUNING, "", began, device="b")
        a, b = (HistoryQuestion(device=name, since=began) for name in ("a", "b"))
        assert (self._told(store, a), self._told(store, b)) == ([], [("s1", 6)])
        assert [row.devices for row in history(store, b)] == [("b",)]
        assert recent(store, a, 1) == ()
        assert recent(store, b, 1)[0].devices == ("b",)

    @staticmethod
    def _told(store: Store, question: HistoryQuestion) -> list[tuple[str, int]]:
        return [(row.study, row.number) for row in history(store, question)]

    def test_a_group_is_that_of_its_studies(self, store: Store) -> None:
        store.studies.revise(replace(store.studies.get("s2"), group="lab"), "ann", "", START)
        lab = HistoryQuestion(group="lab")
        assert self._told(store, lab) == [("s2", 1), ("s2", 2)]
        assert [(row.study, row.number) for row in recent(store, lab, 9)] == [("s2", 2), ("s2", 1)]
        assert recent(store, HistoryQuestion(group="lab", study="s1"), 9) == ()
        assert history(store, HistoryQuestion(group="nobody")) == ()

    def test_the_rows_are_listed_by_time(self, store: Store) -> None:
        assert self._told(store, HistoryQuestion()) == [
            ("s1", 1),
            ("s2", 1),
            ("s1", 2),
            ("s1", 3),
            ("s1", 4),
            ("s1", 5),
            ("s2", 2),
        ]

    @pytest.mark.parametrize(
        ("question", "told"),
        [
            (HistoryQuestion(study="s2"), [("s2", 1), ("s2", 2)]),
            (HistoryQuestion(device="c"), [("s2", 1), ("s2", 2)]),
            (HistoryQuestion(device="b", until=START + timedelta(minutes=2)), [("s1", 1)]),
            (HistoryQuestion(device="nobody"), []),
            (HistoryQuestion(workload="training", state=TrialState.FAILED), [("s2", 1)]),
            (HistoryQuestion(since=START + timedelta(minutes=5)), [("s1", 5), ("s2", 2)]),
            (HistoryQuestion(state=TrialState.RUNNING), [("s2", 2)]),
            (HistoryQuestion(verdict=Verdict.INFEASIBLE), [("s1", 3), ("s1", 5)]),
            (HistoryQuestion(verdict=Verdict.FEASIBLE, workload="training"), []),
        ],
    )
    def test_a_question_narrows(
        self, store: Store, question: HistoryQuestion, told: list[tuple[str, int]]
    ) -> None:
        assert self._told(store, question) == told

    @pytest.mark.parametrize(
        "question",
        [
            HistoryQuestion(),
            HistoryQuestion(study="s2"),
            HistoryQuestion(device="nobody"),
            HistoryQuestion(workload="training", state=TrialState.FAILED),
            HistoryQuestion(verdict=Verdict.INFEASIBLE),
            HistoryQuestion(since=START + timedelta(minutes=1), until=START + timedelta(minutes=5)),
        ],
    )
    def test_a_page_of_the_latest_rows_is_a_slice_of_the_history(
        self, store: Store, question: HistoryQuestion
    ) -> None:
        whole = history(store, question)[::-1]
        for skip in range(len(whole) + 1):
            assert recent(store, question, 2, skip) == whole[skip : skip + 2]

    def test_the_latest_of_an_unknown_study_are_not_found(self, store: Store) -> None:
        with raised(NotFound, "no"):
            recent(store, HistoryQuestion(study="no"), 5)

    def test_an_unknown_study_is_not_found(self, store: Store) -> None:
        for ask in (
            lambda: history(store, HistoryQuestion(study="no")),
            lambda: pareto(store, "no"),
        ):
            with raised(NotFound, "no"):
                ask()

    def test_a_row_has_the_trial_and_its_circumstances(self, store: Store) -> None:
        row = history(store, HistoryQuestion(study="s1"))[4]
        assert (row.devices, row.workload, row.phase) == (("a", "b"), "inference", Phase.TUNING)
        assert (row.setting, row.censored, row.why) == (setting(400), True, "to see")
        assert row.load == {"arrival_rate_per_s": 50.0}
        assert row.metrics["energy_j"] == window(2, 300).estimates["energy_j"]
        assert row.metrics["latency_p99_ms"].mean == 300.0
        assert row.metrics["latency_p99_ms"].high == math.inf  # it was cut short
        assert row.ended_at == START + timedelta(minutes=5, seconds=30)
        failed = history(store, HistoryQuestion(state=TrialState.FAILED))[0]
        assert (failed.verdict, failed.reason, failed.metrics) == (None, "refused", {})

    def test_a_new_limit_judges_all_history_anew(self, store: Store) -> None:
        looser = replace(
            store.studies.get("s1"), constraints=(Constraint.parse("latency_p99_ms <= 200"),)
        )
        store.studies.revise(looser, "bob", "looser", START)
        verdicts = {row.number: row.verdict for row in history(store, HistoryQuestion(study="s1"))}
        assert verdicts[3] is Verdict.FEASIBLE
        assert verdicts[5] is Verdict.INFEASIBLE

    def test_trials_that_no_longer_count_have_no_verdict(self, store: Store) -> None:
        store.studies.revise(replace(store.studies.get("s1"), since_trial=3), "ann", "", START)
        rows = history(store, HistoryQuestion(study="s1"))
        assert [row.verdict for row in rows[:2]] == [None, None]
        assert rows[0].metrics

    def test_the_front_has_no_setting_that_another_beats(self, store: Store) -> None:
        front = [c.setting for c in pareto(store, "s1")]
        assert front == [setting(600), setting(800), setting()]

    def test_a_front_of_one_metric_is_its_best(self, store: Store) -> None:
        assert [c.setting for c in pareto(store, "s1", ["energy_j"])] == [setting(600)]
        assert [c.setting for c in pareto(store, "s1", ["latency_p99_ms"])] == [setting()]

    def test_more_is_better_if_the_study_declares_it(self, store: Store) -> None:
        stored = store.studies.get("s1")
        slower = replace(stored, constraints=(Constraint.parse("latency_p99_ms >= 1"),))
        store.studies.revise(slower, "ann", "", START)
        assert [c.setting for c in pareto(store, "s1")] == [setting(600)]

    def test_equally_good_settings_are_both_on_the_front(self, store: Store) -> None:
        tried(store, "s1", setting(600, 4), completed(6, 150), 9)
        assert setting(600, 4) in [c.setting for c in pareto(store, "s1")]

    def test_an_unmeasured_metric_is_refused(self, store: Store) -> None:
        with raised(MetricUnavailable, "power_kw", "energy_j"):
            pareto(store, "s1", ["energy_j", "power_kw"])
        assert pareto(store, "s2") == ()

    def test_json_and_csv_have_the_same_values(self, store: Store) -> None:
        rows = history(store, HistoryQuestion())
        objects = json.loads(as_json(rows))
        table = list(csv.DictReader(io.StringIO(as_csv(rows))))
        assert len(objects) == len(table) == 7
        for one, cells in zip(objects, table, strict=True):
            assert (one["study"], str(one["number"])) == (cells["study"], cells["number"])
            assert str(one["setting"]["gpu.clock_mhz"]) == cells["knob:gpu.clock_mhz"]
            estimate = one["metrics"].get("energy_j", {"mean": ""})
            assert str(estimate["mean"]) == cells["energy_j"]
