from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from agents.target.escape import LOOK_S, WAITING, Escape
from agents.target.side import SignalSample
from agents.target.waiting_queue import LEAST, WaitingQueue
from tests.builders import SPACE, setting
from tuner.core import Conflict, Setting

SLOW, BASELINE = setting(600), setting()
MANY = 10.0 * LEAST


class Service:
    """A target whose queue and setting are set by hand."""

    def __init__(self) -> None:
        self.space, self.waiting, self.in_force = SPACE, 0.0, dict(SLOW)
        self.applied: list[Setting] = []
        live = SimpleNamespace(read=lambda: SignalSample(present=self.waiting))
        self.signals: dict[str, Any] = {WAITING: live}
        self.caps = SimpleNamespace(lowered=lambda *_: False)

    def read(self) -> Setting:
        return self.in_force

    def apply(self, wanted: Setting) -> None:
        self.in_force = dict(wanted)
        self.applied.append(wanted)

    def conflicts(self) -> list[str]:
        return []


def looking(service: Service) -> tuple[Escape, Any]:
    """Return an escape from SLOW, and a function that looks at a queue of a length."""
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    escape = Escape(cast(Any, service), cast(Any, clock), WaitingQueue(), SLOW, BASELINE)

    def look(waiting: float) -> None:
        service.waiting, now[0] = waiting, now[0] + 2.0 * LOOK_S
        escape.look()

    return escape, look


def test_the_baseline_serves_a_burst_and_the_setting_is_in_force_at_the_end() -> None:
    service = Service()
    escape, look = looking(service)
    look(0.0)
    assert service.applied == []
    look(MANY)
    assert service.applied == [BASELINE]
    escape.end()
    assert service.applied == [BASELINE, SLOW]


def test_a_setting_that_was_lost_before_a_burst_is_not_hidden_by_it() -> None:
    service = Service()
    _, look = looking(service)
    service.in_force = dict(BASELINE)
    with pytest.raises(Conflict, match=r"gpu\.clock_mhz became 1000"):
        look(MANY)
    assert service.applied == []


def test_a_service_that_does_not_report_waiting_requests_has_no_escape() -> None:
    service = Service()
    service.signals = {}
    escape, look = looking(service)
    look(MANY)
    escape.end()
    assert service.applied == []
