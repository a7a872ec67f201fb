"""A study from its baseline to its hold, in memory or in a database file."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from db import Store, open_store
from tests.builders import Descend, Time, applied, completed, device, setting, window
from tests.stores import memory_store
from tuner.core import (
    Device,
    Done,
    InvalidInput,
    Limit,
    Outcome,
    Past,
    Plan,
    Policy,
    Row,
    Safety,
    Setting,
    Signal,
    Suggestion,
    Terms,
    TrialState,
    Try,
)
from tuner.service.operations import Operations
from tuner.study.loop import Loop
from tuner.wire import (
    Assignment,
    Change,
    Decision,
    HoldOrder,
    Poll,
    Release,
    StudyDraft,
    StudyView,
    TrialReport,
)

FILE = "tuned.sqlite"
LIMIT = "latency_p99_ms <= 1.2x baseline"

Surface = Callable[[Setting], Outcome]
Decide = Callable[[Operations, str, Decision], StudyView]


class ByLoad(Descend):
    """Proposes `Descend`'s setting for low loads, decided at the load `at` if given, else the baseline."""

    def __init__(self, at: float | None = None) -> None:
        self._at = at

    def suggest(self, past: Past) -> Suggestion:
        answer = super().suggest(past)
        if isinstance(answer, Try):
            return answer
        rows = (Row(3.0, setting(600), at=self._at), Row(math.inf, past.study.baseline))
        return Done(Plan(rows, "requests_in_system"), "two loads were measured")


def policies(name: str) -> Policy:
    scripted = {"scripted": Descend(), "by-load": ByLoad(), "at-load": ByLoad(2.0)}
    if name not in scripted:
        raise InvalidInput(f"there is no policy {name!r}", hint="known: scripted")
    return scripted[name]


def slope(at: Setting) -> Outcome:
    """Joules fall with the clock, latency rises a little: 600 MHz wins."""
    clock = float(at["gpu.clock_mhz"])
    return completed(clock / 100.0, 100.0 + (1000.0 - clock) / 40.0)


def costly(at: Setting) -> Outcome:
    """Joules rise as the clock falls, and latency falls: only a tight limit makes that worthwhile."""
    clock = float(at["gpu.clock_mhz"])
    return completed(20.0 - clock / 100.0, clock / 10.0)


def broken_at_800(at: Setting) -> Outcome:
    if at["gpu.clock_mhz"] == 800:
        return Outcome(state=TrialState.FAILED, reason="the clock was refused")
    return slope(at)


def steep(at: Setting) -> Outcome:
    """800 MHz wins; 600 MHz breaks the limit and is cut short after a second."""
    if at["gpu.clock_mhz"] != 600:
        return slope(at)
    cut = window(5.0, 200.0, seconds=1.0)
    return replace(completed(), measurement=cut, broke=Limit("latency_p99_ms", "<=", 120.0))


def flat(_: Setting) -> Outcome:
    """All settings are equal, so none wins."""
    return completed()


ASKABLE = device(signals=(Signal("requests_in_system", askable=True),))
"""A device whose agent owns the load generator."""


def operations(store: Store | None = None, about: Device | None = None) -> Operations:
    """Return the verbs over a store with one device."""
    loop = Loop(store or memory_store(), policies, Time().now)
    loop.register(about or device())
    return Operations(loop)


def first(verbs: Operations) -> str:
    return verbs.devices()[0].device.id


def created(verbs: Operations, policy: str = "scripted", safety: Safety = Safety.BALANCED) -> str:
    terms = Terms(safety=safety)
    draft = StudyDraft(
        devices=(first(verbs),), constraints=(LIMIT,), policy=policy, terms=terms, who="ann"
    )
    return verbs.create(draft).id


def proposed(verbs: Operations, surface: Surface = slope, policy: str = "scripted") -> str:
    """Create a study that only advises, and run it to its proposal."""
    study = created(verbs, policy, Safety.ADVISE)
    tune(verbs, surface, Release)
    return study


def retire(verbs: Operations) -> None:
    """Stop every study, so that its device is free."""
    for view in verbs.studies():
        verbs.stop(view.id, Change())


def tune(
    verbs: Operations,
    surface: Surface = slope,
    until: type[HoldOrder] | type[Release] = HoldOrder,
) -> None:
    """Play the agent of the first device until the study holds, or until it is paused."""
    name = first(verbs)
    for _ in range(40):
        order = verbs.loop.order(name, Poll(agent="host", applied=applied(name)))
        if isinstance(order, until):
            return
        assert isinstance(order, Assignment), order
        verbs.loop.trial_reports.record(
            TrialReport.of(order, device=name, outcome=surface(order.setting))
        )
    raise AssertionError("the study does not come to an end")


def held(
    surface: Surface = slope, policy: str = "scripted", about: Device | None = None
) -> tuple[Operations, str]:
    """Return the verbs over a memory store with one study that holds, and its id."""
    verbs = operations(about=about)
    study = created(verbs, policy)
    tune(verbs, surface)
    return verbs, study


def database(
    folder: Path, surface: Surface = slope, policy: str = "scripted", about: Device | None = None
) -> str:
    """Make an SQLite file with one study that holds; return the study's id."""
    store = open_store(f"sqlite:///{folder / FILE}")
    verbs = operations(store, about)
    study = created(verbs, policy)
    tune(verbs, surface)
    store.close()
    return study


BEST = setting(600)
