"""The contract of every driver by which the actuator writes to hardware.

Subclasses give a fixture `driver`: one device with at least one knob, in its first state.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from agents.actuator.driver import KnobDriver, Value
from tuner.errors import ActuationError, KnobRefused


def other_value(driver: KnobDriver, knob: str) -> Value:
    """Return a supported value other than the knob's present one."""
    shown = driver.read()[knob]
    return next(value for value in driver.ranges()[knob] if value != shown)


def one_by_one(driver: KnobDriver) -> Iterator[str]:
    """Yield each knob; knobs that move others are at their last value, which excludes nothing."""
    ranges = driver.ranges()
    movers = [knob for knob in getattr(driver, "moves", ()) if knob in ranges]
    for knob in ranges:
        for mover in movers:
            driver.write(mover, ranges[mover][-1])
        yield knob


def shown(driver: KnobDriver) -> dict[str, tuple[str, Value | None]]:
    """Return each entry's knob and value; the knobs themselves if the driver has no entries."""
    entries = getattr(driver, "entries", None)
    if entries is None:
        return {knob: (knob, value) for knob, value in driver.read().items()}
    return {name: (knob, value) for name, (knob, value, _) in entries()[0].items()}


class DriverContract:
    def test_it_identifies_its_device(self, driver: KnobDriver) -> None:
        assert driver.uuid and driver.board and driver.epoch

    def test_values_ascend_without_repeats(self, driver: KnobDriver) -> None:
        assert driver.ranges()
        for values in driver.ranges().values():
            assert list(values) == sorted(set(values))

    def test_a_driver_offers_only_the_knobs_of_its_kind(self, driver: KnobDriver) -> None:
        assert driver.ranges().keys() <= set(driver.knobs)

    def test_a_driver_reads_every_knob_that_it_offers(self, driver: KnobDriver) -> None:
        assert driver.ranges().keys() <= driver.read().keys()

    def test_written_values_are_read_back_if_possible(self, driver: KnobDriver) -> None:
        for knob in one_by_one(driver):
            readable = driver.read()[knob] is not None
            value = other_value(driver, knob)
            driver.write(knob, value)
            assert driver.read()[knob] in ((value,) if readable else (value, None))

    def test_read_values_can_be_written_back(self, driver: KnobDriver) -> None:
        for knob in one_by_one(driver):
            if (value := driver.read()[knob]) is not None:
                driver.write(knob, other_value(driver, knob))
                driver.write(knob, value)
                assert driver.read()[knob] == value

    def test_a_float_that_equals_an_offered_value_is_that_value(self, driver: KnobDriver) -> None:
        for knob, values in driver.ranges().items():
            if not isinstance(values[0], str):
                driver.write(knob, float(values[0]))
                assert driver.read()[knob] in (values[0], None)

    def test_a_reset_restores_the_default_every_time(self, driver: KnobDriver) -> None:
        for knob in one_by_one(driver):
            driver.write(knob, None)
            factory = driver.read()[knob]
            driver.write(knob, other_value(driver, knob))
            driver.write(knob, None)
            driver.write(knob, None)
            assert driver.read()[knob] == factory

    def test_writing_a_knob_moves_only_its_declared_files(self, driver: KnobDriver) -> None:
        declared: Mapping[str, Sequence[str]] = dict(getattr(driver, "moves", ()))
        for knob in one_by_one(driver):
            before = shown(driver)
            driver.write(knob, other_value(driver, knob))
            after = shown(driver)
            moved = {before[name][0] for name in before if before[name] != after.get(name)}
            assert moved <= {knob, *declared.get(knob, ())}
            for name, (_, value) in sorted(before.items(), key=lambda entry: entry[1][0] != knob):
                if shown(driver)[name][1] != value:
                    driver.write(name, value)

    def test_an_entry_that_is_written_as_it_is_moves_only_declared_ones(
        self, driver: KnobDriver
    ) -> None:
        declared: Mapping[str, Sequence[str]] = dict(getattr(driver, "moves", ()))
        for knob in one_by_one(driver):
            for value in (other_value(driver, knob), None):
                driver.write(knob, value)
                for name, (of, _) in shown(driver).items():
                    before = shown(driver)
                    if name in before and before[name][1] is not None:
                        with suppress(ActuationError):  # a governor excludes a preference
                            driver.write(name, before[name][1])
                        after = shown(driver)
                        moved = {k for n, (k, v) in before.items() if after.get(n) != (k, v)}
                        assert moved <= {*declared.get(of, ())}, name

    def test_writing_does_not_look_like_a_restart(self, driver: KnobDriver) -> None:
        epoch = driver.epoch
        for knob in one_by_one(driver):
            driver.write(knob, other_value(driver, knob))
            driver.write(knob, None)
        assert driver.epoch == epoch

    def test_all_of_it_survives_the_line_to_the_actuator(self, driver: KnobDriver) -> None:
        message = [dict(driver.read()), {k: list(v) for k, v in driver.ranges().items()}]
        assert json.loads(json.dumps(message)) == message


class FileDriverContract(DriverContract):
    """The contract of drivers whose knobs are files."""

    @pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENODATA])
    def test_a_knob_whose_files_take_no_value_is_refused_by_name(
        self, driver: KnobDriver, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        values = {knob: other_value(driver, knob) for knob in driver.ranges()}

        def refuse(file: Path, _: str) -> None:
            raise OSError(number, os.strerror(number), str(file))

        monkeypatch.setattr(Path, "write_text", refuse)
        for knob, value in values.items():
            with pytest.raises(KnobRefused, match=os.strerror(number)) as caught:
                driver.write(knob, value)
            assert caught.value.knob == knob and caught.value.hint
