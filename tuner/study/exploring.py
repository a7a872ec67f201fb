"""Why a study may not begin a trial now: a freeze, a closed maintenance window, or a used budget.

Maintenance windows open by cron in a named time zone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger

from tuner.core import (
    POWER,
    Exploration,
    InvalidInput,
    MaintenanceWindow,
    Past,
    Phase,
    Study,
    Trial,
    called,
)
from tuner.moments import when, when_in_zone

CRON_HINT = 'write five fields with names of days, like "0 2 * * sat"'
SKIPPED = timedelta(hours=2)
"""No time zone skips more of a day, except those that once moved over the date line."""


def waits_to_explore(exploration: Exploration, now: datetime) -> str:
    """Return why a study may measure only its hold; empty if it may measure more."""
    if exploration.frozen:
        return f"frozen: {exploration.frozen}"
    return wait_for_window(exploration, now)


def over_budget(study: Study, trials: Sequence[Trial], now: datetime) -> str:
    """Return why no tuning trial may begin yet, by the budgets of time and energy; empty if one may.

    Baseline and confirming windows are not held back: windows that are compared must be close in
    time.
    """
    limits = study.exploration
    if (
        study.phase is not Phase.TUNING
        or min(limits.max_time_share, limits.max_energy_share) == 1.0
    ):
        return ""
    tried = [t for t in trials if t.phase is Phase.TUNING and not study.rests(t.setting)]
    elapsed_s = (now - study.created_at).total_seconds()
    used_s = sum(((t.ended_at or now) - t.started_at).total_seconds() for t in tried)
    as_baseline_s = 0.0
    if limits.max_energy_share < 1.0:
        as_baseline_s = _baseline_seconds(study, trials, tried)
    for resource, used, share in (
        ("time", used_s, limits.max_time_share),
        ("energy", as_baseline_s, limits.max_energy_share),
    ):
        if used > share * elapsed_s:
            due = study.created_at + timedelta(seconds=used / share)
            return (
                f"exploring used {used / max(elapsed_s, used):.1%} of the {resource} (limit {share:.1%}); "
                f"the next trial may start at {when(due)}"
            )
    return ""


def _baseline_seconds(study: Study, trials: Sequence[Trial], tried: Sequence[Trial]) -> float:
    """Return the seconds in which the baseline would have used the energy of some trials."""
    power = called(POWER, study.quantities)
    baseline = Past(study=study, trials=tuple(trials)).evidence.baseline.get(power)
    if baseline is None or baseline.mean <= 0.0:
        return 0.0
    windows = [(t.measurement, t.shown[power]) for t in tried if t.measurement and power in t.shown]
    used_j = sum((w.seconds + w.overhead_s) * shown.mean for w, shown in windows)
    return used_j / baseline.mean


def check_windows(exploration: Exploration) -> None:
    """Check that every window can open.

    Raises:
        InvalidInput: a time zone is unknown, or a cron cannot be read or never opens.
    """
    _zone(exploration.time_zone)
    for window in exploration.windows:
        trigger = _trigger(window.cron, exploration.time_zone)
        if trigger.get_next_fire_time(None, datetime(2026, 1, 1, tzinfo=UTC)) is None:
            raise InvalidInput(f"cron {window.cron!r} never opens a window", hint=CRON_HINT)


def wait_for_window(exploration: Exploration, now: datetime) -> str:
    """Return the window that trials wait for, in its own time zone; empty if one is open or none needed."""
    if not exploration.windows or any(
        _is_open(window, exploration.time_zone, now) for window in exploration.windows
    ):
        return ""
    coming = (next(_openings(w, exploration.time_zone, now), None) for w in exploration.windows)
    opens = min((at for at in coming if at is not None), default=None)
    return (
        "no window opens any more" if opens is None else f"waits for window {when_in_zone(opens)}"
    )


def _is_open(window: MaintenanceWindow, time_zone: str, now: datetime) -> bool:
    """Return whether a window is open at `now`: it opened less than its length ago."""
    opened = next(_openings(window, time_zone, now - timedelta(hours=window.hours)), None)
    return opened is not None and opened <= now


def _openings(window: MaintenanceWindow, time_zone: str, after: datetime) -> Iterator[datetime]:
    """Yield the openings of a window after a time, by the clocks of its zone.

    A time skipped in spring opens the window that much later; an hour that comes twice in autumn
    opens it once.
    """
    trigger = _trigger(window.cron, time_zone)
    since = after - SKIPPED  # a start within a skipped hour misses its opening
    while (opens := trigger.get_next_fire_time(None, since)) is not None:
        if opens > after and not opens.fold:
            yield opens.astimezone(UTC).astimezone(opens.tzinfo)
        since = max(since, opens.astimezone(UTC)) + timedelta(minutes=1)


@functools.lru_cache(maxsize=1024)
def _trigger(cron: str, time_zone: str) -> CronTrigger:
    """Return the trigger of a window's openings.

    APScheduler counts days of the week from Monday where cron counts from Sunday: names only.

    Raises:
        InvalidInput: the zone is unknown, or the cron cannot be read.
    """
    zone, fields = _zone(time_zone), cron.split()
    if len(fields) != 5 or any(sign.isdigit() for sign in fields[4]):
        raise InvalidInput(f"cron cannot be {cron!r}", hint=CRON_HINT)
    try:
        return CronTrigger.from_crontab(cron, timezone=zone)
    except ValueError as error:
        raise InvalidInput(f"cron cannot be {cron!r}: {error}", hint=CRON_HINT) from None


def _zone(name: str) -> ZoneInfo:
    """Return a time zone. Raises InvalidInput if this machine has none of that name."""
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise InvalidInput(
            f"time_zone cannot be {name!r}",
            hint='write it like "Europe/Berlin" or "UTC"; a machine without tzdata knows UTC only',
        ) from None
