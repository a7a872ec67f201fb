"""A batch job's lease: above a trial and a hold, below a budget's cap; everything is back after it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import raised
from tests.unit.agents.actuator.bench import (
    CLOCK,
    FACTORY,
    GPU,
    HELD,
    LIMIT,
    ME,
    ROOT,
    TRIED,
    YOU,
    Bench,
)
from tuner.core import ActuationError, Conflict, DeviceBusy, OutOfRange, Unauthorised, UnknownKnob

JOB, WISH = "12-0", {LIMIT: 200}
GRACE_S = 60.0


def begin(bench: Bench, job: str = JOB) -> bool:
    return bool(bench.actuator.lease_job(ROOT, GPU, job, WISH)["renewed"])


def end(bench: Bench) -> None:
    bench.actuator.end_job(ROOT, GPU, JOB)


def test_a_wish_is_above_a_hold_which_is_back_after_it(bench: Bench) -> None:
    bench.hold()
    assert not begin(bench) and begin(bench)
    assert bench.values == {**FACTORY, **HELD, **WISH}
    shown = bench.actuator.read(ME, GPU)
    assert (shown["level"], shown["job"]) == ("job", JOB)
    assert bench.actuator.renew(ME, GPU, 10.0)["job"] == JOB
    end(bench)
    assert bench.values == {**FACTORY, **HELD}
    assert bench.actuator.renew(ME, GPU, 10.0)["job"] == ""


def test_a_trial_ends_for_a_job_and_none_begins_beside_it(bench: Bench) -> None:
    bench.trial()
    begin(bench)
    assert bench.values == {**FACTORY, **WISH}
    verbs: list[Callable[[], object]] = [
        lambda: bench.actuator.apply(ME, GPU, TRIED),
        lambda: bench.actuator.renew(ME, GPU, 10.0),
    ]
    for verb in verbs:
        with pytest.raises(Conflict):
            verb()
    for verb in (
        lambda: bench.actuator.acquire(ME, GPU, 5.0),
        lambda: bench.actuator.leave(ME, GPU, LIMIT, "another program sets it"),
        lambda: begin(bench, "13-0"),
    ):
        with raised(DeviceBusy, JOB):
            verb()
    end(bench)
    assert bench.values == FACTORY
    bench.trial()
    assert bench.values == {**FACTORY, **TRIED}


def test_only_root_may_lease_a_gpu_for_a_job_and_only_within_the_grants(bench: Bench) -> None:
    verbs: list[Callable[[], object]] = [
        lambda: bench.actuator.lease_job(ME, GPU, JOB, WISH),
        lambda: bench.actuator.end_job(YOU, GPU, JOB),
    ]
    for verb in verbs:
        with raised(Unauthorised, "root"):
            verb()
    for setting, kind in (({LIMIT: 390}, OutOfRange), ({"fan": 1}, UnknownKnob)):
        with raised(kind):
            bench.actuator.lease_job(ROOT, GPU, JOB, setting)
    assert (bench.values, bench.level()) == (FACTORY, "original")


def test_the_end_of_another_job_ends_nothing(bench: Bench) -> None:
    begin(bench)
    bench.actuator.end_job(ROOT, GPU, "11-0")
    assert bench.values == {**FACTORY, **WISH}


def test_a_budgets_cap_wins_over_a_job(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "b", {"floor": {LIMIT: 150}})

    def cap(revision: int, watts: float) -> None:
        step = {"in_s": 0.0, "cap_w": watts, "at_most": {LIMIT: watts}}
        bench.actuator.cap(ME, GPU, "rack", revision, [step])

    cap(1, 170)
    with raised(OutOfRange, "170"):
        begin(bench)
    cap(2, 300)
    begin(bench)
    assert bench.values[LIMIT] == 200
    cap(3, 170)
    assert bench.values[LIMIT] == 170
    cap(4, 300)
    begin(bench)
    assert bench.values[LIMIT] == 200
    end(bench)
    assert bench.values == {**FACTORY, LIMIT: 150}


def test_a_reloaded_driver_gets_the_setting_of_the_job_again(bench: Bench) -> None:
    bench.hold()
    begin(bench)
    bench.change(epoch="2", values=FACTORY)
    begin(bench)
    assert bench.values == {**FACTORY, **HELD, **WISH}
    end(bench)
    assert bench.values == {**FACTORY, **HELD}


def test_a_setting_of_a_job_that_cannot_be_applied_leaves_the_hold(bench: Bench) -> None:
    bench.hold()
    bench.raises[("write", GPU)] = ActuationError("it does not answer")
    with pytest.raises(ActuationError):
        begin(bench)
    del bench.raises[("write", GPU)]
    bench.passes(100.0)
    assert bench.level() == "original" and bench.values == FACTORY


EVENTS = st.lists(
    st.sampled_from(
        ["hold", "trial", "renew", "release", "gone", "restore", "begin", "other", "end", "wait", "restart"]
    ),
    max_size=14,
)  # fmt: skip


@given(EVENTS)
def test_any_sequence_shows_the_job_over_the_hold_over_the_original(events: list[str]) -> None:
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder) / "b")
        for event in events:
            with suppress(Conflict, DeviceBusy):
                happens(bench, event)
            check(bench)
        for _ in range(2):
            bench.passes(2000.0)
        assert (bench.values, bench.record.exists()) == (FACTORY, False)


def happens(bench: Bench, event: str) -> None:
    match event:
        case "hold":
            bench.hold()
        case "trial":
            bench.trial()
        case "renew":
            bench.actuator.renew(ME, GPU, 10.0)
        case "release":
            bench.actuator.release(ME, GPU)
        case "gone":
            bench.actuator.gone(ME)
        case "restore":
            bench.actuator.restore(ROOT, GPU)
        case "begin":
            begin(bench)
        case "other":
            begin(bench, "13-0")
        case "end":
            end(bench)
        case "wait":
            bench.passes(25.0)
        case "restart":
            bench.start().replay()


def check(bench: Bench) -> None:
    """Check the values in force against the levels that the actuator reports."""
    device = bench.actuator.inner.devices[GPU]
    held = device.leases["hold"].setting if "hold" in device.leases else {}
    job = device.leases.get("job")
    if device.level == "trial":
        assert bench.values == {**FACTORY, **TRIED} and job is None
    else:
        assert bench.values == {**FACTORY, **held, **(WISH if job else {})}
    if job is not None:
        assert bench.now < job.until + 25.0
    assert bench.values[CLOCK] in (None, HELD[CLOCK], TRIED[CLOCK])
