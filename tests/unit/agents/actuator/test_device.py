from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.agents.actuator.bench import (
    CLOCK,
    FACTORY,
    GPU,
    HELD,
    LIMIT,
    ME,
    MEMORY,
    OTHER,
    ROOT,
    TRIED,
    YOU,
    Bench,
    capped,
)
from tuner.core import (
    Conflict,
    DeviceBusy,
    InvalidInput,
    KnobRefused,
    NotFound,
    OutOfRange,
    UnknownKnob,
)


def test_a_trial_is_in_force_until_its_lease_runs_out(bench: Bench) -> None:
    bench.trial()
    assert bench.values == {**FACTORY, **TRIED}
    bench.passes(9.9)
    assert bench.level() == "trial"
    bench.passes(0.2)
    assert bench.values == FACTORY
    assert (bench.level(), bench.record.exists()) == ("original", False)


def test_a_trial_whose_lease_is_renewed_continues(bench: Bench) -> None:
    bench.trial()
    for _ in range(5):
        bench.passes(9.0)
        bench.actuator.renew(ME, GPU, 10.0)
    assert bench.values == {**FACTORY, **TRIED}


def test_a_renewal_that_comes_too_late_is_refused(bench: Bench) -> None:
    bench.trial()
    bench.passes(11.0)
    with pytest.raises(Conflict, match="has ended"):
        bench.actuator.renew(ME, GPU, 10.0)


def test_a_second_writer_is_refused_with_the_owners_name(bench: Bench) -> None:
    bench.trial()
    verbs: list[Callable[[], object]] = [
        lambda: bench.actuator.acquire(YOU, GPU, 5.0),
        lambda: bench.actuator.apply(YOU, GPU, TRIED),
        lambda: bench.actuator.renew(YOU, GPU, 5.0),
        lambda: bench.actuator.hold(YOU, GPU, HELD, 9.0),
        lambda: bench.actuator.release(YOU, GPU),
    ]
    for verb in verbs:
        with pytest.raises(DeviceBusy, match="process 1 of user 7"):
            verb()
    assert bench.values == {**FACTORY, **TRIED}
    bench.actuator.acquire(YOU, OTHER, 5.0)


def test_without_a_lease_nothing_is_written(bench: Bench) -> None:
    with pytest.raises(Conflict, match="acquire"):
        bench.actuator.apply(ME, GPU, TRIED)
    with pytest.raises(Conflict):
        bench.actuator.renew(ME, GPU, 5.0)
    assert bench.hand.puts == []


@pytest.mark.parametrize("lease_s", [0.0, -1.0, 10.5])
def test_a_lease_is_at_most_as_long_as_configured(bench: Bench, lease_s: float) -> None:
    with pytest.raises(InvalidInput, match="lease_s"):
        bench.actuator.acquire(ME, GPU, lease_s)


@pytest.mark.parametrize("verb", ["apply", "hold"])
@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ({CLOCK: 210}, OutOfRange),
        ({CLOCK: 811}, OutOfRange),
        ({LIMIT: 390}, OutOfRange),
        ({LIMIT: True}, OutOfRange),
        ({LIMIT: "300"}, OutOfRange),
        ({MEMORY: 405}, UnknownKnob),
        ({"fan": 3}, UnknownKnob),
    ],
)
def test_an_ungranted_knob_denies_the_whole_setting(
    bench: Bench, verb: str, setting: Mapping[str, Any], kind: type[Exception]
) -> None:
    bench.actuator.acquire(ME, GPU, 5.0)
    whole = {CLOCK: 810, **setting}
    with pytest.raises(kind):
        if verb == "apply":
            bench.actuator.apply(ME, GPU, whole)
        else:
            bench.actuator.hold(ME, GPU, whole, 9.0)
    assert bench.hand.puts == []
    assert not bench.record.exists()


def test_the_original_value_of_a_knob_is_always_granted(bench: Bench) -> None:
    bench.trial({CLOCK: None, LIMIT: 400})
    assert bench.hand.puts == []
    bench.actuator.apply(ME, GPU, TRIED)
    bench.actuator.apply(ME, GPU, {CLOCK: None, LIMIT: 400})
    assert bench.values == FACTORY
    assert bench.level() == "trial"


def test_an_unknown_device_is_refused_by_name(bench: Bench) -> None:
    with pytest.raises(NotFound, match="GPU-1"):
        bench.actuator.acquire(ME, "GPU-9", 5.0)


def test_a_trial_over_a_hold_falls_back_to_the_hold(bench: Bench) -> None:
    bench.hold()
    bench.trial()
    assert bench.values == {**FACTORY, **TRIED}
    bench.passes(11.0)
    assert bench.values == {**FACTORY, **HELD}
    assert bench.level() == "hold"


def test_a_hold_drops_additional_knobs_of_a_trial(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "b", {"grant": {CLOCK: (600, 1410), MEMORY: (405, 1215)}})
    bench.trial({MEMORY: 405})
    bench.actuator.hold(ME, GPU, {CLOCK: 870}, 100.0)
    assert bench.values == {**FACTORY, CLOCK: 870}


def test_an_agent_that_is_gone_ends_its_trial_at_once_and_its_hold_after_the_grace(
    bench: Bench,
) -> None:
    bench.hold()
    bench.trial()
    bench.actuator.gone(ME)
    assert bench.values == {**FACTORY, **HELD}
    bench.passes(59.0)
    assert bench.level() == "hold"
    bench.passes(2.0)
    assert bench.values == FACTORY


def test_an_agent_that_comes_back_in_time_takes_its_hold_over(bench: Bench) -> None:
    bench.hold()
    bench.actuator.gone(ME)
    bench.passes(50.0)
    bench.actuator.hold(YOU, GPU, HELD, 1000.0)
    bench.passes(50.0)
    assert bench.values == {**FACTORY, **HELD}


def test_a_silent_agent_counts_as_gone(bench: Bench) -> None:
    bench.hold()
    bench.passes(50.0)
    bench.actuator.renew(ME, GPU, 10.0)
    bench.passes(50.0)
    assert bench.level() == "hold"
    bench.passes(11.0)
    assert bench.values == FACTORY


def test_a_hold_ends_once_it_is_no_longer_valid(bench: Bench) -> None:
    bench.hold(valid_for_s=30.0)
    bench.passes(29.0)
    assert bench.values == {**FACTORY, **HELD}
    bench.passes(2.0)
    assert bench.values == FACTORY


def test_a_released_device_is_as_it_was_and_free(bench: Bench) -> None:
    bench.hold()
    bench.actuator.release(ME, GPU)
    assert bench.values == FACTORY
    assert not bench.record.exists()
    bench.actuator.acquire(YOU, GPU, 5.0)
    bench.actuator.release(YOU, GPU)


def test_stopping_puts_everything_back(bench: Bench) -> None:
    bench.hold()
    bench.actuator.close()
    assert bench.values == FACTORY


def test_freeing_writes_precede_consuming_ones(bench: Bench) -> None:
    bench.trial({CLOCK: 630, LIMIT: 200})
    bench.hand.puts.clear()
    bench.actuator.apply(ME, GPU, {CLOCK: 1410, LIMIT: 300})
    assert [knob for knob, _ in bench.hand.puts] == [LIMIT, CLOCK]
    bench.hand.puts.clear()
    bench.actuator.apply(ME, GPU, {CLOCK: None, LIMIT: 200})
    assert bench.hand.puts == [(CLOCK, None), (LIMIT, 200)]


def test_the_failsafe_is_written_in_place_of_the_original(tmp_path: Path) -> None:
    bench = capped(tmp_path)
    bench.trial({CLOCK: 810, LIMIT: 200})
    bench.actuator.gone(ME)
    assert bench.values == {CLOCK: 1410, MEMORY: None, LIMIT: 250}
    assert not bench.record.exists()
    assert bench.actuator.capabilities(ME)["devices"][0]["original"] == {CLOCK: 1410}


def test_above_its_fail_safe_a_device_is_never_set_though_it_was_found_there(
    tmp_path: Path,
) -> None:
    bench = capped(tmp_path)
    assert bench.actuator.read(ME, GPU)["found"] == {CLOCK: None, LIMIT: 250}
    bench.trial({LIMIT: None})
    assert bench.values[LIMIT] == 250
    with pytest.raises(OutOfRange):
        bench.trial({LIMIT: 400})
    bench.actuator.release(ME, GPU)
    assert bench.values == {**FACTORY, LIMIT: 250}


def test_capabilities_list_granted_knobs_and_present_values(bench: Bench) -> None:
    bench.trial()
    capabilities = bench.actuator.capabilities(YOU)
    assert capabilities["lease_s"] == 10.0
    granted = capabilities["devices"][0]["granted"]
    assert set(granted) == {CLOCK, LIMIT}
    assert granted[LIMIT][0] >= 150 and granted[LIMIT][-1] <= 350
    assert bench.actuator.read(YOU, GPU)["found"] == {CLOCK: None, LIMIT: 400}


@pytest.mark.parametrize("valid_for_s", [10**400, 1e300, 1001.0])
def test_no_hold_is_longer_than_configured(tmp_path: Path, valid_for_s: float) -> None:
    bench = Bench(tmp_path / "b", hold_s=1000.0)
    bench.actuator.hold(ME, GPU, HELD, valid_for_s)
    for _ in range(19):
        bench.passes(50.0)
        bench.actuator.renew(ME, GPU, 10.0)
    assert bench.level() == "hold"
    bench.passes(51.0)
    assert bench.values == FACTORY


@pytest.mark.parametrize("valid_for_s", [0.0, -1.0])
def test_a_hold_is_valid_for_some_time(bench: Bench, valid_for_s: float) -> None:
    with pytest.raises(InvalidInput, match="valid_for_s"):
        bench.actuator.hold(ME, GPU, HELD, valid_for_s)
    assert bench.hand.puts == []


def test_a_float_that_equals_a_granted_integer_is_written_as_that(bench: Bench) -> None:
    bench.trial({CLOCK: 810.0, LIMIT: 250.0})
    assert {(knob, type(value)) for knob, value in bench.hand.puts} == {(CLOCK, int), (LIMIT, int)}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("acquire"), st.sampled_from([ME, YOU])),
        st.tuples(
            st.sampled_from(["apply", "hold"]),
            st.sampled_from([ME, YOU]),
            st.fixed_dictionaries(
                {},
                optional={
                    CLOCK: st.sampled_from([None, 630, 810, 210, 9999]),
                    LIMIT: st.sampled_from([150, 300, 350, 400, 100]),
                },
            ),
        ),
        st.tuples(st.sampled_from(["renew", "release", "gone"]), st.sampled_from([ME, YOU])),
        st.tuples(st.just("passes"), st.sampled_from([1.0, 11.0, 61.0])),
        st.tuples(st.just("restart")),
    ),
    max_size=25,
)


@given(steps=STEPS)
def test_any_behaviour_of_agents_writes_only_granted_values_and_is_restored(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]
) -> None:
    bench = Bench(tmp_path_factory.mktemp("s") / "b")
    for name, *rest in steps:
        try:
            match name:
                case "acquire" | "renew":
                    getattr(bench.actuator, name)(rest[0], GPU, 10.0)
                case "apply":
                    bench.actuator.apply(rest[0], GPU, rest[1])
                case "hold":
                    bench.actuator.hold(rest[0], GPU, rest[1], 100.0)
                case "release":
                    bench.actuator.release(rest[0], GPU)
                case "gone":
                    bench.actuator.gone(rest[0])
                case "passes":
                    bench.passes(rest[0])
                case "restart":
                    bench.start().replay()
        except (Conflict, InvalidInput):
            pass
        values = bench.values
        assert values[CLOCK] in (None, 630, 810)
        assert values[LIMIT] in (150, 300, 350, 400)
        assert values == FACTORY or bench.record.exists()
        if bench.level() == "original":
            assert values == FACTORY
    bench.passes(2000.0)
    assert bench.values == FACTORY


def test_an_unreadable_lock_is_written_again_when_a_hold_begins(bench: Bench) -> None:
    # Another program ran `nvidia-smi -rgc`; the driver does not report the removed lock.
    bench.hold()
    bench.change(values={**bench.values, CLOCK: None})
    bench.hold()
    assert bench.values[CLOCK] == HELD[CLOCK]


def test_after_a_resume_locks_are_written_again(bench: Bench) -> None:
    bench.hold()
    slept_s = 0.0
    (device,) = (d for d in bench.actuator.inner.devices.values() if d.uuid == GPU)
    device.restorer.suspended_s = lambda: slept_s
    bench.change(values={**bench.values, CLOCK: None})
    bench.passes(1.0)
    assert bench.values[CLOCK] is None
    slept_s = 3600.0
    bench.passes(1.0)
    assert bench.values == {**FACTORY, **HELD}
    assert bench.level() == "hold"


@pytest.mark.parametrize("theirs", [True, False])
def test_a_knob_that_another_program_sets_is_left_to_it_and_the_device_paused(
    bench: Bench, theirs: bool
) -> None:
    bench.hold()
    faults = {"*": "overruled"} if theirs else {}
    bench.change(values={**bench.values, CLOCK: 1410}, faults=faults)
    bench.actuator.leave(ME, GPU, CLOCK, "the clock runs above its lock, twice")
    # Unless the hardware shows a change, an agent's report alone leaves nothing altered.
    assert bench.values == {**FACTORY, CLOCK: 1410 if theirs else None}
    assert bench.level() == "original"
    with pytest.raises(Conflict, match="paused: the clock runs above"):
        bench.hold()
    bench.actuator.restore(ROOT, GPU)
    bench.change(values=dict(FACTORY), faults={"*": ""})
    bench.hold()


def test_only_the_owner_of_a_device_reports_that_another_program_sets_it(bench: Bench) -> None:
    bench.hold()
    with pytest.raises(DeviceBusy):
        bench.actuator.leave(YOU, GPU, CLOCK, "mine")
    assert bench.values == {**FACTORY, **HELD}


def test_a_knob_that_the_hardware_refuses_is_named_and_leaves_nothing_to_put_back(
    bench: Bench,
) -> None:
    # Turing reports the range of memory locks, but refuses every write and the reset (NOT_SUPPORTED).
    bench.change(faults={CLOCK: "unsupported"})
    with pytest.raises(KnobRefused) as caught:
        bench.trial()
    assert caught.value.knob == CLOCK
    assert bench.values == FACTORY
    assert not bench.record.exists()
    bench.trial({LIMIT: 250})
    assert bench.values[LIMIT] == 250


def test_the_drivers_time_extends_a_trial_for_requests_of_its_owner_alone(bench: Bench) -> None:
    asked = bench.hand.ask

    async def slow(verb: str, uuid: str = "", *details: Any) -> Any:  # noqa: ANN401 - JSON
        bench.now += 2.0 if verb == "read" else 0.0
        return await asked(verb, uuid, *details)

    bench.trial()
    bench.hand.ask = slow  # type: ignore[method-assign]
    for _ in range(4):
        bench.actuator.read(YOU, GPU)
    assert bench.actuator.read(YOU, GPU)["level"] == "original"
    bench.trial()
    for _ in range(4):
        bench.actuator.read(ME, GPU)
    assert bench.actuator.read(ME, GPU)["level"] == "trial"


def test_a_lock_that_outlives_a_suspend_in_a_trial_is_restored(bench: Bench) -> None:
    """Nothing shows whether the driver has kept it."""
    slept_s = 0.0
    (device,) = (d for d in bench.actuator.inner.devices.values() if d.uuid == GPU)
    device.restorer.suspended_s = lambda: slept_s
    bench.trial()
    slept_s = 3600.0
    bench.passes(1.0)
    bench.passes(120.0)
    assert bench.values == FACTORY and bench.level() == "original"
