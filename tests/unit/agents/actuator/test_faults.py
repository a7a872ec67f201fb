"""A fault on one device restores that device, and affects no other."""

from __future__ import annotations

import pytest

from agents.actuator.journal import COPIES, STAY
from agents.devices.fake import knobs as fake
from tests.unit.agents.actuator.bench import (
    CLOCK,
    FACTORY,
    GPU,
    HELD,
    LIMIT,
    ME,
    OTHER,
    ROOT,
    TRIED,
    YOU,
    Bench,
)
from tuner.core import (
    ActuationError,
    Conflict,
    DeviceLost,
    StoreError,
    Unauthorised,
)


def test_a_knob_that_refuses_undoes_the_others(bench: Bench) -> None:
    bench.change(faults={CLOCK: "refuse"})
    with pytest.raises(ActuationError, match="refuses"):
        bench.trial({LIMIT: 250, CLOCK: 810})
    bench.change(faults={CLOCK: None})
    bench.passes(2.0)
    assert bench.values == FACTORY
    assert not bench.record.exists()


def test_a_knob_that_reads_back_another_value_is_an_error(bench: Bench) -> None:
    bench.change(faults={LIMIT: {"clamp": 333}})
    with pytest.raises(ActuationError, match="333, not 250"):
        bench.trial()
    assert bench.values[CLOCK] is None
    bench.change(faults={LIMIT: None})
    bench.passes(2.0)
    assert bench.values == FACTORY


def test_restoring_goes_on_past_a_failure_and_is_tried_again(bench: Bench) -> None:
    bench.trial()
    bench.change(faults={CLOCK: "refuse"})
    with pytest.raises(ActuationError, match="not restored"):
        bench.actuator.release(ME, GPU)
    assert bench.values == {**FACTORY, CLOCK: 810}
    with pytest.raises(ActuationError, match="not restored"):
        bench.actuator.acquire(YOU, GPU, 5.0)
    bench.change(faults={CLOCK: None})
    bench.passes(0.5)
    assert bench.values[CLOCK] == 810
    bench.passes(1.0)
    assert bench.values == FACTORY
    bench.actuator.acquire(YOU, GPU, 5.0)


def test_a_device_that_stays_broken_is_tried_less_often(bench: Bench) -> None:
    bench.trial()
    bench.change(faults={CLOCK: "refuse"})
    bench.hand.puts.clear()
    bench.actuator.gone(ME)
    for _ in range(600):
        bench.passes(1.0)
    assert 10 <= sum(1 for knob, _ in bench.hand.puts if knob == CLOCK) <= 20


def test_a_lost_device_is_put_back_once_it_answers(bench: Bench) -> None:
    bench.trial()
    bench.change(faults={"*": "lost"})
    with pytest.raises(ActuationError):
        bench.actuator.renew(ME, GPU, 5.0)
    assert "fell off the bus" in bench.actuator.status()
    assert bench.actuator.capabilities(ME)["devices"]
    bench.change(faults={"*": None})
    bench.passes(2.0)
    assert bench.values == FACTORY


@pytest.mark.promise(
    "another program sets a knob",
    "its value stays and the device is paused, also after restarts, until root restores it",
)
def test_a_foreign_value_is_kept_and_the_device_paused(bench: Bench) -> None:
    bench.trial()
    bench.change(values={LIMIT: 222})
    assert bench.actuator.read(ME, GPU)["values"][LIMIT] == 222
    with pytest.raises(ActuationError, match="222"):
        bench.actuator.renew(ME, GPU, 5.0)
    assert bench.values == {**FACTORY, LIMIT: 222}
    with pytest.raises(Conflict, match="paused"):
        bench.actuator.acquire(YOU, GPU, 5.0)
    with pytest.raises(Conflict, match="paused"):
        bench.actuator.hold(YOU, GPU, HELD, 5.0)
    bench.start().replay()

    with pytest.raises(Conflict, match="paused"):
        bench.actuator.acquire(YOU, GPU, 5.0)
    bench.actuator.restore(ROOT, GPU)
    assert not bench.record.exists()
    bench.trial()
    bench.actuator.release(ME, GPU)
    assert bench.values == {**FACTORY, LIMIT: 222}


def test_a_foreign_change_is_noticed_when_the_trial_lapses(bench: Bench) -> None:
    bench.trial()
    bench.change(values={LIMIT: 222})
    bench.passes(11.0)
    assert bench.values == {**FACTORY, LIMIT: 222}
    assert "222" in bench.actuator.status()


def test_a_failed_restore_is_retried_in_a_fresh_driver_process(bench: Bench) -> None:
    bench.trial()
    bench.change(faults={LIMIT: "refuse"})
    bench.passes(11.0)
    assert "refuses" in bench.actuator.status()
    before = bench.hand.closed
    bench.passes(2.0)
    assert bench.hand.closed == before + 1
    bench.change(faults={LIMIT: None})
    bench.passes(4.0)
    assert bench.values == FACTORY


def test_an_unreadable_knob_is_restored_too(bench: Bench) -> None:
    bench.trial()
    bench.raises["read", GPU] = ActuationError("no reading")
    bench.passes(11.0)
    assert bench.values == FACTORY
    assert "no reading" in bench.actuator.status()
    bench.raises.clear()
    bench.passes(2.0)
    assert bench.level() == "original"
    assert not bench.record.exists()


def test_a_knob_that_the_driver_leaves_out_is_not_written(bench: Bench) -> None:
    bench.hand.untold = LIMIT
    with pytest.raises(ActuationError, match=f"does not report {LIMIT}"):
        bench.trial()
    assert bench.hand.puts == []
    assert bench.level() == "original"


@pytest.mark.promise(
    "an unforeseen error on one device",
    "that device reverts to its original; the others keep their leases",
)
@pytest.mark.parametrize("verb", ["read", "write"])
def test_a_fault_on_one_device_ends_nothing_on_another(bench: Bench, verb: str) -> None:
    bench.trial()
    bench.actuator.hold(YOU, OTHER, HELD, 1000.0)
    bench.raises[verb, GPU] = KeyError("unforeseen")
    bench.passes(11.0)
    assert "unforeseen" in bench.actuator.status()
    bench.actuator.renew(YOU, OTHER, 5.0)
    assert f"{OTHER}: hold" in bench.actuator.status()
    bench.raises.clear()
    bench.passes(2.0)
    assert bench.values == FACTORY
    assert bench.actuator.status() == "GPU-1: original, GPU-2: hold"


def test_an_error_in_a_request_restores_that_device(bench: Bench) -> None:
    bench.hold()
    bench.trial()
    bench.raises["read", GPU] = KeyError("unforeseen")
    with pytest.raises(KeyError):
        bench.actuator.renew(ME, GPU, 5.0)
    bench.raises.clear()
    bench.passes(2.0)
    assert (bench.values, bench.level()) == (FACTORY, "original")


def test_a_write_that_may_still_be_done_keeps_the_record_until_it_cannot(bench: Bench) -> None:
    bench.hold()
    bench.actuator.acquire(ME, GPU, 10.0)
    bench.raises["write", GPU] = DeviceLost("the driver did not answer")
    bench.hand.late = 1
    with pytest.raises(DeviceLost):
        bench.actuator.apply(ME, GPU, TRIED)
    bench.raises.clear()
    bench.passes(2.0)
    assert bench.values == FACTORY
    assert bench.record.exists()
    assert "may still take effect" in bench.actuator.status()
    with pytest.raises(ActuationError, match="not restored"):
        bench.actuator.hold(ME, GPU, HELD, 1000.0)
    bench.change(values=TRIED)  # the late write takes effect
    bench.hand.late = 0
    bench.passes(2.0)
    assert bench.values == FACTORY
    assert (bench.actuator.status(), bench.record.exists()) == (
        "GPU-1: original, GPU-2: original",
        False,
    )


def test_root_restores_all_devices_and_they_stay_so_until_that_is_lifted(bench: Bench) -> None:
    bench.hold()
    bench.actuator.hold(YOU, OTHER, HELD, 1000.0)
    assert bench.actuator.stay(ROOT) == {"wrong": {}}
    assert bench.values == FACTORY
    for _ in range(2):
        assert (
            "process 3 of user 0 keeps all devices at original settings" in bench.actuator.status()
        )
        assert bench.actuator.capabilities(ME)["stay"] == "process 3 of user 0"
        for verb in (bench.trial, bench.hold, lambda: bench.actuator.renew(ME, GPU, 5.0)):
            with pytest.raises(Conflict, match="restore --all --lift"):
                verb()
        bench.actuator.release(ME, GPU)
        bench.boot = "boot 2"
        assert bench.start().replay() == {}
    assert bench.hand.puts == []
    bench.actuator.lift(ROOT)
    bench.trial()
    bench.start().replay()
    bench.trial()


@pytest.mark.parametrize("verb", ["stay", "lift", "restore_all"])
def test_only_root_may_request_all_devices(bench: Bench, verb: str) -> None:
    bench.trial()
    with pytest.raises(Unauthorised, match="root"):
        getattr(bench.actuator, verb)(ME)
    assert bench.level() == "trial"


def test_all_are_put_back_though_the_order_to_stay_cannot_be_written(bench: Bench) -> None:
    bench.hold()
    bench.disk.full = True
    with pytest.raises(StoreError, match="No space left"):
        bench.actuator.stay(ROOT)
    assert bench.values == FACTORY
    with pytest.raises(Conflict, match="lift"):
        bench.hold()


def test_a_damaged_order_to_stay_holds(bench: Bench) -> None:
    bench.actuator.stay(ROOT)
    for copy in COPIES:
        (bench.journal / f"{STAY}{copy}").write_bytes(b"junk")
    bench.start().replay()
    with pytest.raises(Conflict, match="cannot be read"):
        bench.hold()
    bench.actuator.lift(ROOT)
    bench.hold()


def test_a_failed_restore_affects_no_other_device(bench: Bench) -> None:
    bench.hold()
    bench.actuator.hold(YOU, OTHER, HELD, 1000.0)
    bench.change(faults={LIMIT: "refuse"})
    failures = bench.actuator.restore_all(ROOT)["wrong"]
    assert failures.keys() == {GPU} and "refuses" in failures[GPU]
    assert fake.load(bench.hardware)["devices"][OTHER]["values"] == FACTORY
