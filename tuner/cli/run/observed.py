"""The result of `jouletune observe`: its windows, and each metric pooled over them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from agents.target.measured import MeasuredTarget
from agents.target.observe import Ask, Check, MeasuredWindow, Observer
from agents.target.side import MeasuredSide
from tuner.core import (
    FOREIGN_LOAD,
    Conflict,
    CounterAndPower,
    Estimate,
    Origin,
    OwnRequests,
    Phase,
    Quantity,
    RuleFinding,
    RuleResult,
    Scope,
    Scrapes,
    Setting,
    TuningError,
    WorkloadPlace,
    ZoneReads,
    pool_windows,
    quantity_of,
    render_setting,
    standard,
    window_energy,
)
from tuner.core.witnesses import RULES
from tuner.presentation.texts import improved, requested_metrics, sized
from tuner.verbs.table import Verbs
from tuner.wire import StudyView

ENERGY_RULES = frozenset(
    [r.__name__ for kind, r in RULES if kind in (CounterAndPower, ZoneReads, WorkloadPlace)]
    + ["energy_beside_power"]
)
"""The rules that judge energy and power; those of a workload's own counters judge its other figures."""
SHORTEST_S = 0.5
COUNTER_RULES = frozenset(r.__name__ for kind, r in RULES if kind in (Scrapes, OwnRequests))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedMetric:
    """One metric over all windows. `low` and `high` are one-sided 95 % bounds; None if unbounded.

    `judged_by` has the rules that compared it with a second witness, `not_judged_by` the other rules with
    the reason; docs/measurement.md describes each.
    """

    value: float
    stderr: float
    low: float | None
    high: float | None
    n: int
    unit: str
    origin: Origin
    scope: Scope
    source: str
    judged_by: tuple[str, ...]
    not_judged_by: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowMetric:
    """One metric of one window, in its quantity's unit."""

    value: float
    stderr: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedWindow:
    """One window. `joules` is the energy of its whole length, of all that ran on the device.

    `busy` is the busy share of the host's cores, `foreign` the share that other programs than the workload
    used; None if unknown. `notes` qualify its figures by subject.
    """

    started_at: datetime
    seconds: float
    completed: int
    failed: int
    joules: float | None
    busy: float | None
    foreign: float | None
    throttled: tuple[str, ...]
    context: Mapping[str, float]
    notes: Mapping[str, str]
    metrics: Mapping[str, WindowMetric]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedWindow:
    """A window whose figures were refused, and the reason."""

    at: datetime
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTarget:
    """The JSON document of `jouletune observe`; docs/api/observe.schema.json is its schema.

    `unavailable` has the metrics that cannot be measured here, each with the reason. `settings_written`
    is empty: an observed target has no actuator. `forecasts` are figures of other devices; `no_forecast` is
    why the tuner gave none.
    """

    format: int = 1
    device: str
    board: str
    driver: str
    workload: str
    workload_version: str
    windows: tuple[ObservedWindow, ...]
    refused: tuple[RefusedWindow, ...]
    metrics: Mapping[str, ObservedMetric]
    unavailable: Mapping[str, str]
    settings_written: tuple[str, ...] = field(default=())
    forecasts: tuple[Forecast, ...] = field(default=())
    no_forecast: str = ""


def observed(
    observer: Observer, window_s: float, count: int, until_s: float, check: Check
) -> Iterator[MeasuredWindow | RefusedWindow]:
    """Yield `count` windows; if it is 0, at least one, and all that end before `until_s` on the clock.

    Raises:
        Conflict: `check` requires an end.
    """
    number, length = 0, window_s
    while number < max(1, count) or observer.clock.monotonic() + length <= until_s:
        number += 1
        began, at = observer.clock.monotonic(), observer.now()
        left = window_s if count else min(window_s, max(SHORTEST_S, until_s - began))
        ask = Ask(metrics=(), window_s=left, max_window_s=left, idle=number == 1)
        rng = random.Random(f"{observer.seed}/{number}")
        try:
            yield observer.window({}, ask, check, rng, began)
        except Conflict:
            raise
        except TuningError as error:  # a lost device or server, too: the windows before it count
            yield RefusedWindow(at=at, why=str(error))
            if not count:  # no window fails at once, time after time
                observer.pause(began + left - observer.clock.monotonic(), check)
        length = observer.clock.monotonic() - began


def observation(
    target: MeasuredTarget[MeasuredSide], outcomes: Sequence[MeasuredWindow | RefusedWindow]
) -> ObservedTarget:
    """Return windows as one document, each metric pooled over them."""
    windows = [one for one in outcomes if isinstance(one, MeasuredWindow)]
    pooled = pool_windows([one.measurement.estimates for one in windows], target.quantities)
    findings = [finding for one in windows for finding in one.findings]
    runs = target.runs
    listed = {m.name: f"not measured: {_silence(windows)}" for m in target.metrics}
    cannot = {name: why for name, why in target.cannot.items() if standard(name) is not None}
    return ObservedTarget(
        device=" + ".join(side.name for side in target.devices),
        board=" + ".join(side.board for side in target.devices),
        driver=target.driver,
        workload="" if target.workload is None else runs.name,
        workload_version="" if target.workload is None else runs.version,
        windows=tuple(_window(one, target) for one in windows),
        refused=tuple(one for one in outcomes if isinstance(one, RefusedWindow)),
        metrics={name: _metric(name, one, target, findings) for name, one in pooled.items()},
        unavailable={n: why for n, why in (listed | cannot).items() if n not in pooled},
    )


def _silence(windows: Sequence[MeasuredWindow]) -> str:
    """Return why a metric that a meter lists has no figure."""
    if not any(one.measurement.load.completed for one in windows):
        return "no item was completed"
    return "too few items or readings"


def _metric(
    name: str,
    estimate: Estimate,
    target: MeasuredTarget[MeasuredSide],
    findings: Sequence[RuleFinding],
) -> ObservedMetric:
    """Return a pooled estimate with the rules that judged it."""
    quantity = quantity_of(name, target.quantities)
    about = [finding for finding in findings if _judges(finding.rule, quantity)]
    unknown = {f.rule: f.why for f in about if f.result is RuleResult.UNKNOWN}
    return ObservedMetric(
        value=estimate.mean,
        stderr=estimate.stderr,
        low=estimate.low if math.isfinite(estimate.low) else None,
        high=estimate.high if math.isfinite(estimate.high) else None,
        n=estimate.n,
        unit=quantity.unit,
        origin=estimate.origin,
        scope=estimate.scope,
        source=target.source(name),
        judged_by=tuple(dict.fromkeys(f.rule for f in about if f.rule not in unknown)),
        not_judged_by=unknown,
    )


def _judges(rule: str, quantity: Quantity) -> bool:
    """Return whether a rule compares figures of this quantity."""
    if rule in ENERGY_RULES:
        return quantity.of_energy
    return rule not in COUNTER_RULES or not quantity.of_energy


def _window(window: MeasuredWindow, target: MeasuredTarget[MeasuredSide]) -> ObservedWindow:
    """Return a window of the document."""
    shown = window.measurement
    energy = window_energy(shown, target.quantities)
    return ObservedWindow(
        started_at=shown.started_at,
        seconds=shown.seconds,
        completed=shown.load.completed,
        failed=shown.load.failed,
        joules=None if energy is None else energy[0],
        busy=shown.load.utilisation,
        foreign=shown.foreign if target.workload and FOREIGN_LOAD not in shown.sources else None,
        throttled=shown.throttled,
        context=shown.context,
        notes={n: text for n, text in shown.sources.items() if n not in shown.estimates},
        metrics={
            name: WindowMetric(value=one.mean, stderr=one.stderr, n=one.n)
            for name, one in shown.estimates.items()
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The saving of a setting that a study holds on another device: measured there, not here.

    `saving` is the share by which the objective's `metric` is better there, with its standard error, or
    its gain in the metric's unit if `relative` is false.
    """

    study: str
    devices: tuple[str, ...]
    board: str
    workload: str
    setting: Setting
    metric: str
    saving: Estimate
    relative: bool
    text: str


def forecasts(api: Verbs[StudyView], board: str, workload: str) -> Iterator[Forecast]:
    """Yield the saving of each study of this board and workload that holds more than its baseline.

    Raises LinkError and its kin: the tuner does not answer.
    """
    devices = {view.device.id: view.device for view in api.devices()}
    for view in api.studies():
        first, held = devices.get(view.devices[0]), view.confirmed
        alike = first is not None and (first.board, view.workload) == (board, workload)
        if not alike or view.phase is not Phase.HOLDING or held in (None, view.baseline.setting):
            continue
        gain, metric = improved(api.report(view.id)), requested_metrics(view)[0]
        if gain is None or held is None:
            continue
        verb = "saved" if gain.amount.mean >= 0.0 else "cost"
        text = (
            f"study {view.id} on {', '.join(view.devices)} {verb} "
            f"{sized(gain, metric, view.quantities)} of {metric} at "
            f"{render_setting(held)}; it was not measured in this observation"
        )
        yield Forecast(
            study=view.id,
            devices=view.devices,
            board=board,
            workload=workload,
            setting=held,
            metric=metric,
            saving=gain.amount,
            relative=gain.relative,
            text=text,
        )
