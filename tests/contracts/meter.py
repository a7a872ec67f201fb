"""The contract of every meter.

Subclasses give two fixtures: `side`, newly opened; and `later`, which lets some seconds pass for it.
`origin` is the stated origin of all its numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from agents.target.side import Side
from agents.target.window import RATIOS
from tuner.core import Origin

Later = Callable[[], None]
UNITS = ("_j", "_w", "_s", "_ms")
COUNTS = ("items", "failed")


class MeterContract:
    origin = Origin.MEASURED

    def test_every_listed_metric_is_shown_or_follows_from_totals(
        self, side: Side, later: Later
    ) -> None:
        window = side.meter.start()
        later()
        shown = window.stop()
        for metric in side.metrics:
            totals = shown.totals
            assert metric.name in shown.estimates or RATIOS[metric.quantity].total in totals

    def test_a_window_shows_only_listed_metrics_and_totals(self, side: Side, later: Later) -> None:
        window = side.meter.start()
        later()
        listed = {metric.name for metric in side.metrics} | {"arrival_rate_per_s"}
        shown = window.stop()
        assert shown.totals or shown.estimates
        assert shown.estimates.keys() <= listed
        assert all(name.endswith((*UNITS, *COUNTS)) for name in shown.totals)
        assert all(name.endswith(UNITS) for name in shown.estimates)

    def test_numbers_have_their_origin(self, side: Side, later: Later) -> None:
        window = side.meter.start()
        later()
        assert {e.origin for e in window.stop().estimates.values()} <= {self.origin}
        assert {metric.origin for metric in side.metrics} <= {self.origin}

    def test_nothing_is_negative_and_totals_never_fall(self, side: Side, later: Later) -> None:
        window = side.meter.start()
        seen = [window.read()]
        for _ in range(3):
            later()
            seen.append(window.read())
        seen.append(window.stop())
        assert all(e.mean >= 0.0 for shown in seen for e in shown.estimates.values())
        for before, after in pairwise(seen):
            assert all(after.totals[name] >= value for name, value in before.totals.items())

    def test_a_closed_window_always_shows_the_same(self, side: Side, later: Later) -> None:
        window = side.meter.start()
        later()
        first = window.stop()
        later()
        assert window.stop() == first
        assert window.read() == first

    def test_windows_do_not_disturb_each_other(self, side: Side, later: Later) -> None:
        long = side.meter.start()
        later()
        short = side.meter.start()
        later()
        shorter = short.stop().totals
        later()
        longer = long.stop().totals
        assert shorter.keys() == longer.keys()
        assert all(longer[name] >= value for name, value in shorter.items())

    def test_a_window_just_opened_shows_no_number_it_cannot_know_yet(self, side: Side) -> None:
        shown = side.meter.start().read()
        assert all(value == pytest.approx(0.0, abs=1.0) for value in shown.totals.values())
        assert not {metric.name for metric in side.metrics} & shown.estimates.keys()
