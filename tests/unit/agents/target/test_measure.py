from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agents.target.observe import JITTER, Ask
from agents.target.target import Target
from tests.fakes import FakeActuator, Rig, refused, steady
from tuner.cli.run.processes import discarded
from tuner.core import (
    NO_TABLE,
    Conflict,
    Estimate,
    Limit,
    MeasurementError,
    Outcome,
    Plan,
    Row,
    Setting,
    StaleToken,
    TrialState,
)

SLOW: Setting = {"gpu.clock_mhz": 400, "batch_size": 4}
METRICS = ("energy_j", "latency_p99_ms")
ENERGY_ONLY = Ask(metrics=("energy_j",), window_s=10.0, max_window_s=30.0)


def quietly() -> None:
    return


def ask(
    metrics: tuple[str, ...] = METRICS,
    *,
    limits: tuple[Limit, ...] = (),
    max_window_s: float = 30.0,
    rate: float | None = None,
) -> Ask:
    return Ask(
        metrics=metrics,
        limits=limits,
        window_s=10.0,
        max_window_s=max_window_s,
        expected={} if rate is None else {"arrival_rate_per_s": rate},
    )


def attempt(
    rig: Rig, request: Ask, check: Callable[[], None] = quietly, name: str = "trial 1"
) -> Outcome:
    return rig.bench.trial(SLOW, request, check, name)


def test_a_trial_measures_the_requested_metrics(rig: Rig) -> None:
    outcome = attempt(rig, ask())
    measurement = outcome.measurement
    assert outcome.state is TrialState.COMPLETED and measurement is not None
    assert measurement.estimates["energy_j"].mean == pytest.approx(2.0, rel=0.01)
    assert measurement.load.completed == pytest.approx(50 * measurement.seconds, abs=1)
    assert measurement.overhead_s == pytest.approx(2.0 + 1.0)
    assert measurement.sources["cpu_time_ms"] == "the CPU accounting of served"
    assert rig.setting == SLOW
    assert rig.meter.open == rig.work_meter.open == 0


class FollowsTable(FakeActuator):
    """A workload that follows a table by itself, until another program sets it."""

    table: Plan | None = None

    def follow(self, plan: Plan) -> bool:
        self.table = plan
        return True

    def followed(self) -> Plan | None:
        return self.table


def table(rig: Rig) -> Plan:
    return Plan((Row(2.5, SLOW, at=2.0), Row(math.inf, {**SLOW, "batch_size": 1}, at=8.0)), "load")


@pytest.mark.parametrize("ended", [False, True])
def test_a_table_is_followed_for_a_window_and_must_be_to_its_end(rig: Rig, ended: bool) -> None:
    work = FollowsTable("workload", rig.workload_space, rig.log)
    work.closed = rig.closed
    rig.work = work

    def check() -> None:
        if ended and rig.meter.open:
            work.table = None

    outcome = attempt(rig, replace(ask(), plan=table(rig)), check)
    if ended:
        assert outcome.state is TrialState.CONTAMINATED and "ended the table" in outcome.reason
    else:
        assert outcome.state is TrialState.COMPLETED, outcome.reason
        assert work.table is not None and work.table.rows[1].setting == {"batch_size": 1}
        assert rig.setting["gpu.clock_mhz"] == 400, "the other knobs are at the first row's"


def test_a_workload_that_switches_no_rows_fails_a_trial_of_a_table(rig: Rig) -> None:
    outcome = attempt(rig, replace(ask(), plan=table(rig)))
    assert outcome.state is TrialState.FAILED and NO_TABLE in outcome.reason


def test_a_load_runs_as_long_as_its_side_requests(rig: Rig) -> None:
    target, bench = rig.target, rig.bench
    assert target.workload is not None
    slow = Target(target.devices, replace(target.workload, warm_up_s=4.0))
    outcome = replace(bench, target=slow).trial(SLOW, ask(), quietly, "trial 1")
    assert outcome.measurement is not None
    assert outcome.measurement.overhead_s == pytest.approx(2.0 + 4.0)


def test_a_window_begins_once_the_device_has_settled(rig: Rig) -> None:
    began: list[float] = []

    def shows(start: float, now: float) -> Mapping[str, float | Estimate]:
        began.append(start)
        return steady()(start, now)

    rig.shows = shows
    attempt(rig, ask())
    assert min(began) >= rig.target.settle_s


def test_windows_differ_a_little_in_length_and_repeat_under_a_seed(tmp_path: Path) -> None:
    def seconds(folder: str, name: str) -> float:
        measurement = attempt(Rig(tmp_path / folder), ENERGY_ONLY, name=name).measurement
        assert measurement is not None
        return measurement.seconds

    lengths = [seconds(f"{k}", f"trial {k}") for k in range(8)]
    assert len(set(lengths)) == 8
    assert all(abs(s - 10.0) <= 10.0 * JITTER + 1e-6 for s in lengths)
    assert seconds("again", "trial 3") == lengths[3]


def test_a_setting_that_cannot_be_applied_fails(rig: Rig) -> None:
    before = rig.setting
    rig.device.refuse = lambda s: refused() if s["gpu.clock_mhz"] == 400 else None
    outcome = attempt(rig, ask())
    assert outcome.state is TrialState.FAILED and "the driver says no" in outcome.reason
    assert rig.setting == before


def test_an_unbounded_tail_extends_the_window(rig: Rig) -> None:
    rig.shows = steady(per_s=20.0)
    outcome = attempt(rig, ask())
    assert outcome.state is TrialState.COMPLETED and outcome.measurement is not None
    assert 299 / 20.0 <= outcome.measurement.seconds < 20.0


def test_a_tail_still_unbounded_in_the_longest_window_is_inconclusive(rig: Rig) -> None:
    rig.shows = steady(per_s=5.0)
    outcome = attempt(rig, ask())
    assert outcome.state is TrialState.INCONCLUSIVE and outcome.measurement is not None
    assert outcome.measurement.seconds == pytest.approx(30.0, rel=0.1)
    assert "too few to bound latency_p99_ms" in outcome.reason


def test_an_unrequested_tail_extends_no_window(rig: Rig) -> None:
    rig.shows = steady(per_s=5.0)
    outcome = attempt(rig, ENERGY_ONLY)
    assert outcome.state is TrialState.COMPLETED and outcome.measurement is not None
    assert outcome.measurement.seconds < 11.0


def test_a_mean_with_a_large_error_extends_the_window(rig: Rig) -> None:
    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        seconds = now - began
        own = Estimate.of_mean(3.0, 3.0 / (1.0 + seconds), 5)
        return {**steady()(began, now), "latency_mean_ms": own}

    rig.shows = shows
    outcome = attempt(rig, ask(("latency_mean_ms",)))
    assert outcome.state is TrialState.COMPLETED and outcome.measurement is not None
    assert 18.0 < outcome.measurement.seconds < 21.0


def test_a_limit_clearly_broken_cuts_the_window_short(rig: Rig) -> None:
    outcome = attempt(rig, ask(limits=(Limit("latency_p99_ms", "<=", 10.0),)))
    assert outcome.state is TrialState.COMPLETED
    assert outcome.broke == Limit("latency_p99_ms", "<=", 10.0)
    assert outcome.measurement is not None
    assert outcome.measurement.seconds < 3.0
    assert "latency_p99_ms is at least 19" in outcome.reason
    assert rig.meter.open == 0


def test_the_queue_of_a_window_that_was_cut_short_is_not_of_the_next(rig: Rig) -> None:
    rig.shows = lambda b, n: {**steady()(b, n), "arrival_rate_per_s": Estimate(50.0)}
    rig.listed = (*rig.listed, "arrival_rate_per_s")
    bench, outcomes = rig.bench, []
    for high_ms in (1e6, 10.0, 1e6, 1e6):
        request = ask(limits=(Limit("latency_p99_ms", "<=", high_ms),))
        outcomes.append(bench.trial(SLOW, request, quietly, "trial 1"))
    usual, cut, after, later = (o.measurement for o in outcomes)
    assert usual and cut and after and later
    assert after.overhead_s == pytest.approx(usual.overhead_s + cut.seconds)
    assert later.overhead_s == pytest.approx(usual.overhead_s)


def test_a_window_is_not_cut_short_on_a_handful_of_requests(rig: Rig) -> None:
    rig.shows = steady(per_s=20.0)
    outcome = attempt(rig, ask(limits=(Limit("latency_p99_ms", "<=", 10.0),)))
    assert outcome.broke is not None and outcome.measurement is not None
    assert 50 <= outcome.measurement.load.completed <= 75


def test_a_window_is_not_cut_short_at_the_edge(rig: Rig) -> None:
    outcome = attempt(rig, ask(limits=(Limit("latency_p99_ms", "<=", 18.9),)))
    assert outcome.state is TrialState.COMPLETED and not outcome.censored


def test_a_contaminated_window_is_measured_again(rig: Rig) -> None:
    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        others = 1.0 if began < 10.0 else 0.0
        return {**steady()(began, now), "busy_s": (1.0 + others) * (now - began)}

    rig.shows = shows
    outcome = attempt(rig, ask())
    assert outcome.state is TrialState.COMPLETED and outcome.measurement is not None
    assert outcome.measurement.foreign == 0.0
    assert 19.0 < outcome.measurement.overhead_s < 23.0  # half a disturbed window, then a pause
    assert rig.meter.opened == 4


def test_windows_that_stay_contaminated_are_reported_so(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "agent.log"
    rig.shows = lambda b, n: {**steady()(b, n), "busy_s": 2.0 * (n - b)}
    outcome = attempt(rig, ask(), name="cpu@h/s1/4/1")
    assert outcome.state is TrialState.CONTAMINATED and outcome.measurement is not None
    assert "other processes used 50 % of the host's cores" in outcome.reason
    assert rig.meter.opened == 6
    log.write_text(caplog.text)
    assert caplog.text.count("window_discarded") == 1, "once a trial, after its first window"
    shown = discarded(log, "s1", "other processes")
    assert outcome.reason == f"{shown}; measured 3 times", "a run says it at once"
    assert discarded(log, "s2", "other processes") == discarded(log, "s1", "a cap") == ""


def test_a_window_without_an_item_because_of_others_is_contaminated(rig: Rig) -> None:
    rig.shows = lambda b, n: {**steady(per_s=0.0)(b, n), "busy_s": 2.0 * (n - b)}
    outcome = attempt(rig, ask())
    assert outcome.state is TrialState.CONTAMINATED
    assert "other processes used" in outcome.reason


def test_a_window_goes_on_until_a_slow_service_has_given_each_metric(rig: Rig) -> None:
    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        seen = dict(steady()(began, now))
        if now - began < 20.0:
            seen.pop("latency_p99_ms", None)
        return seen

    rig.shows = shows
    outcome = attempt(rig, ask())
    assert outcome.state is TrialState.COMPLETED and outcome.measurement is not None
    assert outcome.measurement.seconds >= 20.0


def test_a_share_just_above_its_limit_is_distinguished_from_it(rig: Rig) -> None:
    rig.shows = lambda b, n: {**steady()(b, n), "busy_s": 1.308 * (n - b)}
    outcome = attempt(rig, ask())
    assert "other processes used 15.4 % of" in outcome.reason
    assert "(limit 15 %)" in outcome.reason


def test_an_operator_may_allow_more_foreign_load(rig: Rig) -> None:
    rig.shows = lambda b, n: {**steady()(b, n), "busy_s": 1.6 * (n - b)}
    bench = replace(rig.bench, foreign_share=0.35)
    assert bench.trial(SLOW, ask(), quietly, "trial 1").state is TrialState.COMPLETED
    bench = replace(rig.bench, foreign_share=0.25)
    assert "(limit 25 %)" in bench.trial(SLOW, ask(), quietly, "trial 1").reason


def test_a_limit_broken_by_other_programs_is_no_evidence_and_is_not_tried_again(rig: Rig) -> None:
    rig.shows = lambda b, n: {**steady()(b, n), "busy_s": 2.0 * (n - b)}
    outcome = attempt(rig, ask(limits=(Limit("latency_p99_ms", "<=", 10.0),)))
    assert outcome.state is TrialState.CONTAMINATED and not outcome.censored
    assert rig.meter.opened == 2


@pytest.mark.parametrize(
    ("listed", "expected", "state"),
    [
        (True, 50.0, TrialState.COMPLETED),
        (True, 60.0, TrialState.COMPLETED),
        (True, 70.0, TrialState.CONTAMINATED),
        (True, 39.0, TrialState.CONTAMINATED),
        (True, None, TrialState.COMPLETED),
        (False, 70.0, TrialState.COMPLETED),
    ],
)
def test_another_rate_than_the_baselines_contaminates_in_open_loop_only(
    rig: Rig, listed: bool, expected: float | None, state: TrialState
) -> None:
    rig.shows = lambda b, n: {**steady()(b, n), "arrival_rate_per_s": Estimate(50.0)}
    if listed:
        rig.listed = (*rig.listed, "arrival_rate_per_s")
    outcome = attempt(rig, ask(rate=expected))
    assert outcome.state is state


def test_a_foreign_change_of_a_knob_contaminates(rig: Rig) -> None:
    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        if now > 8.0:
            rig.device.now["gpu.clock_mhz"] = 600
        return steady()(began, now)

    rig.shows = shows
    outcome = attempt(rig, ask())
    assert outcome.state is TrialState.CONTAMINATED
    assert "gpu.clock_mhz became 600" in outcome.reason


def test_throttling_is_noted_and_no_contamination(rig: Rig) -> None:
    rig.shows = lambda b, n: {**steady()(b, n), "throttled_power_s": 0.5 * (n - b)}
    outcome = attempt(rig, ask())
    assert outcome.state is TrialState.COMPLETED and outcome.measurement is not None
    assert outcome.measurement.throttled == ("power",)


@pytest.mark.parametrize(
    ("shows", "why"),
    [
        (lambda b, n: {"energy_j": 1.0 * (n - b)}, "did not give energy_j, latency_p99_ms"),
        (lambda b, n: {"latency_p99_ms": Estimate(float("nan"))}, "nan"),
        (lambda b, n: {**steady()(b, n), "latency_p99_ms": Estimate(-1.0)}, "is negative"),
        (steady(per_s=0.0), "no item was completed"),
        (steady(watts=0.0), "did not advance"),
    ],
)
def test_a_window_with_a_wrong_number_fails(
    rig: Rig, shows: Callable[[float, float], Mapping[str, float | Estimate]], why: str
) -> None:
    rig.shows = shows
    outcome = attempt(rig, ask())
    assert outcome.state is TrialState.FAILED and outcome.measurement is None
    assert why in outcome.reason
    assert rig.meter.open == rig.work_meter.open == 0


def test_a_meter_that_fails_half_way_fails_the_trial(rig: Rig) -> None:
    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        if now > 8.0:
            raise MeasurementError("the counter was reset")
        return steady()(began, now)

    rig.shows = shows
    outcome = attempt(rig, ask())
    assert outcome.state is TrialState.FAILED and "the counter was reset" in outcome.reason
    assert rig.meter.open == 0


def test_a_lost_lease_ends_the_trial_at_the_next_look(rig: Rig) -> None:
    def check() -> None:
        if rig.time.monotonic() > 6.0:
            raise StaleToken("somebody newer has it")

    outcome = attempt(rig, ask(), check)
    assert outcome.state is TrialState.ABORTED and "somebody newer has it" in outcome.reason
    assert rig.time.monotonic() <= 6.6
    assert rig.meter.open == rig.work_meter.open == 0


def test_a_trial_that_may_not_begin_changes_nothing(rig: Rig) -> None:
    def check() -> None:
        raise Conflict("the agent was stopped")

    assert attempt(rig, ask(), check).state is TrialState.ABORTED
    assert rig.log == []
