"""Maintenance windows over clock changes, and invalid crons."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tuner.core import Exploration, InvalidInput, MaintenanceWindow
from tuner.study.maintenance_windows import check_windows, wait_for_window

BERLIN = Exploration(windows=(MaintenanceWindow("30 2 * * *", 4.0),), time_zone="Europe/Berlin")


def opening(exploration: Exploration, since: datetime, hours: int = 24) -> list[datetime]:
    """Return the moments, in steps of ten minutes, at which trials may run."""
    moments = [since + timedelta(minutes=10 * n) for n in range(6 * hours)]
    return [at for at in moments if not wait_for_window(exploration, at)]


@pytest.mark.parametrize(
    ("day", "opens"),
    [
        (datetime(2026, 3, 27, 12, tzinfo=UTC), datetime(2026, 3, 28, 1, 30, tzinfo=UTC)),
        # 02:30 is skipped: the window opens at 03:30, which is the same moment.
        (datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),
        (datetime(2026, 3, 29, 12, tzinfo=UTC), datetime(2026, 3, 30, 0, 30, tzinfo=UTC)),
        # 02:30 occurs twice: the window opens once, and lasts four hours.
        (datetime(2026, 10, 24, 12, tzinfo=UTC), datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
        (datetime(2026, 10, 25, 12, tzinfo=UTC), datetime(2026, 10, 26, 1, 30, tzinfo=UTC)),
    ],
)
def test_a_window_opens_once_a_day_and_lasts_its_hours_also_when_clocks_change(
    day: datetime, opens: datetime
) -> None:
    assert opening(BERLIN, day) == [opens + timedelta(minutes=10 * n) for n in range(24)]


def test_the_awaited_window_is_given_in_its_time_zone() -> None:
    saturdays = Exploration(
        windows=(MaintenanceWindow("0 2 * * sat", 4.0),), time_zone="Europe/Berlin"
    )
    friday = datetime(2026, 10, 23, 12, tzinfo=UTC)
    assert wait_for_window(saturdays, friday) == "waits for window Sat 2026-10-24 02:00 CEST"
    assert wait_for_window(saturdays, friday + timedelta(days=7)) == (
        "waits for window Sat 2026-10-31 02:00 CET"
    )
    skipped = datetime(2026, 3, 29, 1, 10, tzinfo=UTC)
    assert wait_for_window(BERLIN, skipped) == "waits for window Sun 2026-03-29 03:30 CEST"


def test_any_of_several_windows_is_enough() -> None:
    both = Exploration(
        windows=(MaintenanceWindow("0 0 * * *", 1.0), MaintenanceWindow("0 12 * * *", 2.0))
    )
    day = datetime(2026, 6, 1, tzinfo=UTC)
    assert {at.hour for at in opening(both, day)} == {0, 12, 13}
    assert wait_for_window(both, day.replace(hour=5)) == "waits for window Mon 2026-06-01 12:00 UTC"


def test_without_windows_nothing_waits() -> None:
    assert wait_for_window(Exploration(), datetime(2026, 1, 1, tzinfo=UTC)) == ""


@pytest.mark.parametrize(
    ("cron", "zone", "words"),
    [
        ("0 2 * * 6", "UTC", "names of days"),
        ("0 2 * *", "UTC", "five fields"),
        ("0 25 * * sat", "UTC", "cron cannot be '0 25"),
        ("0 2 30 feb *", "UTC", "never opens"),
        ("0 2 * * sat", "Europe/Berlyn", "time_zone cannot be"),
        ("0 2 * * sat", "../../etc/passwd", "time_zone cannot be"),
    ],
)
def test_a_window_that_cannot_open_is_refused(cron: str, zone: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_windows(Exploration(windows=(MaintenanceWindow(cron, 1.0),), time_zone=zone))
    assert words in str(caught.value)


@pytest.mark.parametrize("hours", [0.0, -1.0, 169.0, float("nan")])
def test_a_window_of_no_length_is_refused(hours: float) -> None:
    with pytest.raises(InvalidInput, match="hours cannot be"):
        MaintenanceWindow("0 2 * * sat", hours)
