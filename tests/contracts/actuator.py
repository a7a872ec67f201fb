"""The contract of every actuator of a device or a workload.

Subclasses give a fixture `side`, newly opened and at the default of its space.
"""

from __future__ import annotations

import pytest

from agents.target.side import Side
from tests.errors import raised
from tuner.core import OutOfRange, Setting, UnknownKnob


def changed_knobs(one: Setting, other: Setting) -> list[str]:
    return [name for name in one if one[name] != other[name]]


def neighbour(side: Side) -> Setting:
    """Return a setting that differs from the default in exactly one knob."""
    default = side.space.default
    return next(s for s in side.space.grid() if len(changed_knobs(default, s)) == 1)


class ActuatorContract:
    def test_it_reports_every_knob_and_only_those(self, side: Side) -> None:
        assert set(side.actuator.read()) == {k.name for k in side.space.knobs}

    def test_it_has_its_default_when_new(self, side: Side) -> None:
        assert side.actuator.read() == side.space.default

    def test_an_unknown_knob_is_refused_by_name(self, side: Side) -> None:
        with raised(UnknownKnob, "warp_factor"):
            side.actuator.apply({**side.space.default, "warp_factor": 9})
        assert side.actuator.read() == side.space.default

    def test_applying_the_setting_in_force_changes_nothing(self, side: Side) -> None:
        side.actuator.apply(side.actuator.read())
        side.actuator.apply({})
        assert side.actuator.read() == side.space.default


class SettableContract(ActuatorContract):
    """The contract of an actuator with at least one knob."""

    def test_applied_values_are_read_back(self, side: Side) -> None:
        for setting in (neighbour(side), side.space.default, *list(side.space.grid())[-2:]):
            side.actuator.apply(setting)
            assert side.actuator.read() == setting
            side.actuator.apply(setting)
            assert side.actuator.read() == setting

    def test_knobs_that_are_not_named_keep_their_value(self, side: Side) -> None:
        wanted = neighbour(side)
        (name,) = changed_knobs(side.space.default, wanted)
        side.actuator.apply({name: wanted[name]})
        assert side.actuator.read() == wanted

    def test_one_invalid_value_stops_the_whole_setting(self, side: Side) -> None:
        wanted = neighbour(side)
        (good,) = changed_knobs(side.space.default, wanted)
        for knob in side.space.knobs:
            with pytest.raises(OutOfRange, match=knob.name):
                side.actuator.apply({good: wanted[good], knob.name: "nonsense"})
        assert side.actuator.read() == side.space.default

    def test_an_unknown_knob_stops_the_good_ones_too(self, side: Side) -> None:
        with pytest.raises(UnknownKnob):
            side.actuator.apply({**neighbour(side), "warp_factor": 9})
        assert side.actuator.read() == side.space.default

    def test_a_returned_value_is_a_copy(self, side: Side) -> None:
        mine = dict(side.actuator.read())
        mine.clear()
        assert side.actuator.read() == side.space.default
