from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from agents.target.side import SignalSample
from agents.target.signal_mean import SignalMean
from tests.builders import Time
from tuner.core import PEAK, Signal, peak_name


@dataclass
class Told:
    """A signal with given values."""

    now: SignalSample
    signal: Signal = field(default_factory=lambda: Signal("waiting"))

    def read(self) -> SignalSample:
        return self.now


def looked(first: SignalSample, *then: tuple[float, SignalSample]) -> dict[str, float]:
    time, live = Time(), Told(first)
    mean = SignalMean(live, time)
    for seconds, sample in then:
        time.sleep(seconds)
        live.now = sample
        mean.look()
    return {name: value for name, value in mean.context.items() if not name.endswith(PEAK)}


def test_a_signal_that_is_a_running_total_has_an_exact_mean() -> None:
    assert looked(
        SignalSample(None, 100.0),
        (2.0, SignalSample(None, 110.0)),
        (2.0, SignalSample(None, 140.0)),
    ) == {"waiting": 10.0}


def test_without_an_integral_each_reading_counts_for_the_time_since_the_last() -> None:
    context = looked(SignalSample(0.0), (1.0, SignalSample(8.0)), (3.0, SignalSample(4.0)))
    assert context["waiting"] == pytest.approx(5.0)


@pytest.mark.parametrize(
    "then",
    [
        SignalSample(None, 5.0, "second"),
        SignalSample(None, -3.0, "first"),
        SignalSample(float("nan"), None, "first"),
    ],
)
def test_incomparable_windows_have_no_mean(then: SignalSample) -> None:
    assert looked(SignalSample(None, 1.0, "first"), (1.0, then)) == {}


def test_one_reading_gives_no_mean() -> None:
    assert looked(SignalSample(3.0)) == {}


def test_the_peak_is_the_highest_level_of_half_a_minute() -> None:
    time, live = Time(), Told(SignalSample(None, 0.0))
    mean, total = SignalMean(live, time), 0.0
    for second in range(300):
        total += 3.0 if 100 <= second < 200 else 9.0 if second == 20 else 1.0
        time.sleep(0.5)
        mean.glance()  # too early
        time.sleep(0.5)
        live.now = SignalSample(None, total)
        mean.glance()
    assert 2.8 < mean.context[peak_name("waiting")] <= 3.0, "not the 9 of a second"
