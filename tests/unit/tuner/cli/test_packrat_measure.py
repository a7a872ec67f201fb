from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.cli.app import main
from tuner.cli.packings import TRIES, ModelBench, Quiet, Shapes, Shown


def seconds(shapes: Shapes) -> float:
    """Return what a machine of two cores takes: threads help, but less than they ought to."""
    slowest: float = max(0.004 + 0.01 * items / threads**0.6 for threads, items in shapes)
    return slowest * (1.05 if len(shapes) > 1 else 1.0)


class Machine:
    """Takes as long as `seconds` says, a little off; `foreign` is what each window will show.

    Several instances at once take `luck` times as long, window by window; then as long as ever.
    """

    def __init__(self, foreign: Sequence[float] = (), luck: Sequence[float] = ()) -> None:
        self.asked: list[list[tuple[int, int]]] = []
        self._foreign = iter(foreign)
        self._luck = iter(luck)

    def window(self, shapes: Shapes) -> Shown:
        self.asked.append(list(shapes))
        off = 1.0 + 0.002 * (len(self.asked) % 3 - 1)
        if len(shapes) > 1:
            off *= next(self._luck, 1.0)
        return Shown(seconds(shapes) * off, 0.00001, next(self._foreign, 0.0))


def bench(
    machine: Machine, batches: tuple[int, ...] = (1, 2, 4, 8, 16), threads: int = 2
) -> ModelBench:
    return ModelBench(threads, batches, 3, Quiet(machine.window, 0.05), lambda what: None)


FAT, THIN = [(2, 8)], [(1, 4), (1, 4)]


def test_the_choice_is_confirmed_in_turns_and_then_measured_anew() -> None:
    machine = Machine()
    found = bench(machine)
    found.profile()
    found.side_by_side()
    machine.asked.clear()
    shown = found.compare(8)
    assert machine.asked == 2 * [FAT, THIN, THIN, FAT, FAT, THIN]
    assert [(g.instances, g.threads, g.batch) for g in shown.plan] == [(2, 1, 4)]
    assert shown.plan == shown.candidate
    assert shown.speedup == pytest.approx(seconds(FAT) / seconds(THIN), rel=0.01)
    assert 0.0 < shown.speedup_stderr < 0.02
    assert shown.fat_latency_s == pytest.approx(seconds(FAT), rel=0.01)
    assert not shown.is_fat and not shown.is_slower


def test_what_chooses_is_not_what_is_told() -> None:
    """Twice as fast while it is confirmed, no faster than the fat instance afterwards."""
    lucky = [0.5] * 3
    afterwards = [seconds(FAT) / seconds(THIN) * 1.1] * 3
    machine = Machine()
    found = bench(machine)
    found.profile()
    found.timed.window = Machine(luck=[*lucky, *afterwards]).window
    shown = found.compare(8)
    assert shown.confirming is not None
    assert shown.confirming.speedup == pytest.approx(2 * seconds(FAT) / seconds(THIN), rel=0.01)
    assert shown.speedup == pytest.approx(1 / 1.1, rel=0.01)
    assert shown.is_slower and not shown.is_fat, "the bad figure is told, not taken back"


@pytest.mark.parametrize("luck", [[1.8] * 3, [0.6, 1.0, 1.8]], ids=["slower", "noisy"])
def test_a_packing_that_is_not_faster_beyond_noise_is_not_chosen(luck: list[float]) -> None:
    found = bench(Machine())
    found.profile()
    machine = Machine(luck=luck)
    found.timed.window = machine.window
    shown = found.compare(8)
    assert machine.asked == [FAT, THIN, THIN, FAT, FAT, THIN]
    assert [(g.instances, g.threads, g.batch) for g in shown.candidate] == [(2, 1, 4)]
    assert [(g.instances, g.threads, g.batch) for g in shown.plan] == [(1, 2, 8)]
    assert shown.is_fat and not shown.is_slower
    assert (shown.speedup, shown.speedup_stderr) == (1.0, 0.0)


def test_what_was_measured_side_by_side_comes_before_what_is_predicted() -> None:
    """Alone on a disturbed core the thin instance looks hopeless; beside its like it does not."""
    found = bench(Machine())
    found.profile()
    found.side_by_side()
    point = found.points[1, 4]
    found.points[1, 4] = replace(point, latency_s=3 * point.latency_s)
    shown = found.compare(8)
    assert [(g.instances, g.threads, g.batch) for g in shown.candidate] == [(2, 1, 4)]
    assert shown.predicted_latency_s > 2 * seconds(THIN), "the prediction is told as it was"


def test_where_the_fat_instance_is_expected_to_be_best_nothing_is_confirmed() -> None:
    machine = Machine()
    found = bench(machine)
    found.profile()
    machine.asked.clear()
    shown = found.compare(1)
    assert machine.asked == [] and shown.is_fat and shown.speedup == 1.0
    assert shown.confirming is None


def test_points_that_cannot_matter_are_not_profiled() -> None:
    found = bench(Machine(), (1, 2, 4, 8, 16, 32, 64), threads=16)
    found.profile()
    assert {(16, b) for b in (1, 2, 4, 8, 16, 32, 64)} <= set(found.points)
    assert len(found.points) < len(found.cells)


def test_side_by_side_teaches_what_instances_cost_each_other() -> None:
    found = bench(Machine())
    found.profile()
    found.side_by_side()
    assert [(w.instances, w.threads, w.batch) for w in found.plans] == [
        (2, 1, 1),
        (2, 1, 2),
        (2, 1, 4),
        (2, 1, 8),
    ]
    shown = found.compare(16)
    assert shown.predicted_latency_s == pytest.approx(seconds([(1, 8), (1, 8)]), rel=0.02)


def test_a_window_in_which_others_computed_is_measured_again() -> None:
    machine = Machine([0.3, 0.2, 0.01])
    timed = Quiet(machine.window, 0.05)
    assert timed([(2, 1)]).foreign == 0.01
    assert (timed.rejected, timed.disturbed, timed.worst) == (2, 0, 0.01)


def test_a_machine_that_is_never_quiet_shows_its_quietest_window_and_says_so() -> None:
    machine = Machine([0.5, 0.4, 0.3, 0.6, 0.7])
    timed = Quiet(machine.window, 0.05)
    assert timed([(2, 1)]).foreign == 0.3
    assert len(machine.asked) == TRIES
    assert (timed.rejected, timed.disturbed, timed.worst) == (TRIES - 1, 1, 0.3)


class FakeTimer:
    """Stands for the processes: takes as long as `seconds` says; `luck` as in `Machine`."""

    luck: Sequence[float] = ()

    def __init__(self, *_: object) -> None:
        self._machine = Machine(luck=self.luck)

    def __enter__(self) -> FakeTimer:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def window(self, shapes: Shapes, length_s: float) -> Shown:
        return self._machine.window(shapes)

    def own_bytes(self) -> int:
        return 1 << 20


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from agents.workloads.reference import timing

    monkeypatch.setattr(timing, "Timer", FakeTimer)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    yield


def asked(*options: str) -> list[str]:
    return ["packrat", "measure", "--models", "mobilenet,bert", "--windows", "2", *options]


def test_the_command_tells_every_batch_and_what_it_comes_to(
    timed: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "profile.csv"
    assert main(asked("--json", "--out", str(out))) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    batches = [b for m in told["models"] for b in m["batches"]]
    assert [b["batch"] for b in batches] == [1, 2, 4, 8, 16] * 2
    assert told["speedup_max"] == max(b["speedup"] for b in batches) > 1.0
    assert told["prediction_error_median_percent"] < 5.0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert {r["model"] for r in rows} == {"mobilenet", "bert"}
    # What was measured is what `packrat plan` reads.
    plan = ["packrat", "plan", "--profile", str(out), "--model", "bert", "--json"]
    assert main([*plan, "--threads", "2", "--batch", "8"]) == 0
    planned = json.loads(capsys.readouterr().out)
    shown = next(b for b in batches[5:] if b["batch"] == 8)
    assert planned["predicted_latency_s"] == pytest.approx(shown["predicted_latency_s"])


def test_the_command_prints_a_table(timed: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(asked()) == 0
    text = capsys.readouterr().out
    assert "2×⟨1,8⟩" in text and "the fat one" in text
    assert "speed-up  mean" in text and "plans left out of the fit" in text
    assert "none of 10 slower than the fat instance beyond noise" in text


def test_the_command_tells_what_was_not_confirmed_and_what_lost_all_the_same(
    timed: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two windows of each: 8 side by side, then batch by batch 2 to confirm and 2 to tell."""
    monkeypatch.setattr(FakeTimer, "luck", [1.0] * 8 + [2.0] * 2 + [1.0] * 2 + [2.0] * 2)
    assert main(["packrat", "measure", "--models", "bert", "--windows", "2"]) == 0
    text = capsys.readouterr().out
    assert "batch 2: 2×⟨1,1⟩ promised to be faster and showed 0." in text
    assert "1 of 5 slower than the fat instance beyond noise" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--models", "resnet5"], "no reference model 'resnet5'"),
        (["--batches", "1,x"], "--batches cannot be '1,x'"),
        (["--batches", "0"], "--batches cannot be '0'"),
        (["--threads", "3"], "this process may use 2 cores"),
        (["--out", "/no/such/folder/x.csv"], "cannot write /no/such/folder/x.csv"),
    ],
)
def test_bad_input_is_one_clear_line(
    timed: None, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(asked(*options)) == 2
    assert message in capsys.readouterr().err
