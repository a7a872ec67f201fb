"""Choosing a packing by windows: the profile, side by side, then in turns with the single instance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bench.turns import TRIES, QuietTimer
from tests.engines.machine import Machine, seconds
from tests.engines.packings import ModelBench


def bench(
    machine: Machine, batches: tuple[int, ...] = (1, 2, 4, 8, 16), threads: int = 2
) -> ModelBench:
    return ModelBench(threads, batches, 3, QuietTimer(machine.window, 0.05), lambda what: None)


FAT, THIN = [(2, 8)], [(1, 4), (1, 4)]


def test_the_choice_is_confirmed_in_turns_and_then_measured_anew() -> None:
    machine = Machine()
    model_bench = bench(machine)
    model_bench.profile()
    model_bench.side_by_side()
    machine.asked.clear()
    shown = model_bench.compare(8)
    assert machine.asked == 2 * [FAT, THIN, THIN, FAT, FAT, THIN]
    assert [(g.instances, g.threads, g.batch) for g in shown.plan] == [(2, 1, 4)]
    assert shown.plan == shown.candidate
    assert shown.speedup == pytest.approx(seconds(FAT) / seconds(THIN), rel=0.01)
    assert 0.0 < shown.speedup_stderr < 0.02
    assert shown.fat_latency_s == pytest.approx(seconds(FAT), rel=0.01)
    assert not shown.is_fat and not shown.is_slower


def test_the_choosing_windows_are_not_the_reported_ones() -> None:
    """The packing is twice as fast while it is confirmed, and no faster than one instance afterwards."""
    lucky = [0.5] * 3
    afterwards = [seconds(FAT) / seconds(THIN) * 1.1] * 3
    machine = Machine()
    model_bench = bench(machine)
    model_bench.profile()
    model_bench.timed.window = Machine(luck=[*lucky, *afterwards]).window
    shown = model_bench.compare(8)
    assert shown.confirming is not None
    assert shown.confirming.speedup == pytest.approx(2 * seconds(FAT) / seconds(THIN), rel=0.01)
    assert shown.speedup == pytest.approx(1 / 1.1, rel=0.01)
    assert shown.is_slower and not shown.is_fat, "the bad figure is told, not taken back"


@pytest.mark.parametrize("luck", [[1.8] * 3, [0.6, 1.0, 1.8]], ids=["slower", "noisy"])
def test_a_packing_that_is_not_faster_beyond_noise_is_not_chosen(luck: list[float]) -> None:
    model_bench = bench(Machine())
    model_bench.profile()
    machine = Machine(luck=luck)
    model_bench.timed.window = machine.window
    shown = model_bench.compare(8)
    assert machine.asked == [FAT, THIN, THIN, FAT, FAT, THIN]
    assert [(g.instances, g.threads, g.batch) for g in shown.candidate] == [(2, 1, 4)]
    assert [(g.instances, g.threads, g.batch) for g in shown.plan] == [(1, 2, 8)]
    assert shown.is_fat and not shown.is_slower
    assert (shown.speedup, shown.speedup_stderr) == (1.0, 0.0)


def test_side_by_side_measurements_replace_predictions() -> None:
    """On a disturbed core a single small instance is very slow; several side by side are not."""
    model_bench = bench(Machine())
    model_bench.profile()
    model_bench.side_by_side()
    point = model_bench.points[1, 4]
    model_bench.points[1, 4] = replace(point, latency_s=3 * point.latency_s)
    shown = model_bench.compare(8)
    assert [(g.instances, g.threads, g.batch) for g in shown.candidate] == [(2, 1, 4)]
    assert shown.predicted_latency_s > 2 * seconds(THIN), "the prediction is told as it was"


def test_where_the_fat_instance_is_expected_to_be_best_nothing_is_confirmed() -> None:
    machine = Machine()
    model_bench = bench(machine)
    model_bench.profile()
    machine.asked.clear()
    shown = model_bench.compare(1)
    assert machine.asked == [] and shown.is_fat and shown.speedup == 1.0
    assert shown.confirming is None


def test_points_that_cannot_matter_are_not_profiled() -> None:
    model_bench = bench(Machine(), (1, 2, 4, 8, 16, 32, 64), threads=16)
    model_bench.profile()
    assert {(16, b) for b in (1, 2, 4, 8, 16, 32, 64)} <= set(model_bench.points)
    assert len(model_bench.points) < len(model_bench.cells)


def test_windows_side_by_side_teach_the_interference() -> None:
    model_bench = bench(Machine())
    model_bench.profile()
    model_bench.side_by_side()
    assert [(w.instances, w.threads, w.batch) for w in model_bench.plans] == [
        (2, 1, 1),
        (2, 1, 2),
        (2, 1, 4),
        (2, 1, 8),
    ]
    shown = model_bench.compare(16)
    assert shown.predicted_latency_s == pytest.approx(seconds([(1, 8), (1, 8)]), rel=0.02)


def test_a_window_in_which_others_computed_is_measured_again() -> None:
    machine = Machine([0.3, 0.2, 0.01])
    timed = QuietTimer(machine.window, 0.05)
    assert timed([(2, 1)]).foreign == 0.01
    assert (timed.rejected, timed.disturbed, timed.worst) == (2, 0, 0.01)


def test_an_always_busy_machine_shows_its_quietest_window_marked_as_such() -> None:
    machine = Machine([0.5, 0.4, 0.3, 0.6, 0.7])
    timed = QuietTimer(machine.window, 0.05)
    assert timed([(2, 1)]).foreign == 0.3
    assert len(machine.asked) == TRIES
    assert (timed.rejected, timed.disturbed, timed.worst) == (TRIES - 1, 1, 0.3)
