"""Tries each knob, the meter and each signal of a workload once, then restores the original."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress

from agents.host.machine import suspended_s
from agents.host.symptoms import Symptom
from agents.target.side import LiveSignal, MeasuresRuns, Side
from agents.target.target import Target
from agents.target.window import TargetWindow, Usage
from tuner.core import FAILURES, ONE_WITNESS, Clock, Estimate, Knob, Setting, TuningError, Value

READS = 5
LONGER = 6
"""The longest window while a metric needs more requests, as a multiple of the requested length."""
WAIT_S = 0.5
APART, LEAST_CHANGE = 4.0, 0.02
"""The least effect, in standard errors and as a share of the mean. Few parts make the errors uncertain,
so the first is large: our choice."""
Estimates = Mapping[str, Estimate]


def rehearse(side: Side, clock: Clock, seconds: float) -> Iterator[Symptom]:
    """Yield the result of each knob, the meter and each signal.

    A window takes `seconds`, or complete runs. The original setting is restored, also if a step
    fails.

    Raises:
        ActuationError: it could not be restored.
    """
    try:
        original = side.actuator.read()
    except TuningError as error:
        yield _failed("what is in force", error)
        return
    try:
        for knob in side.space.knobs:
            yield _knob(side, knob, original, clock)
    finally:
        side.actuator.apply(original)
    shown = yield from _window(side, clock, seconds)
    for knob in side.space.knobs:
        if knob.name in side.unproven:
            try:
                yield _effect(side, knob, original, shown, clock, seconds)
            finally:
                side.actuator.apply(original)
    for signal in side.signals:
        yield _signal(signal)
    for name, why in side.cannot.items():
        yield Symptom(name, False, why)


def _knob(side: Side, knob: Knob, original: Setting, clock: Clock) -> Symptom:
    """Set a knob to another value and back."""
    value = _other(side, knob, original)
    if value is None:
        why = "no other value is allowed with the other knobs"
        return Symptom(knob.name, True, f"{original[knob.name]}; {why}")
    began = clock.monotonic()
    try:
        side.actuator.apply({**original, knob.name: value})
        now = side.actuator.read()[knob.name]
        took_s = clock.monotonic() - began
        side.actuator.apply(original)
    except TuningError as error:
        with suppress(TuningError):  # the caller restores, and reports a failure
            side.actuator.apply(original)
        return _failed(knob.name, error)
    change = f"{original[knob.name]} → {value} in {took_s:.2g} s, and back"
    if now != value:
        return Symptom(knob.name, False, f"it was set to {value}, but {now} was read back")
    return Symptom(knob.name, True, change)


def _other(side: Side, knob: Knob, original: Setting) -> Value | None:
    """Return the first other value that is allowed with the present values of all other knobs."""
    name, now = knob.name, original[knob.name]
    others = (v for v in knob.values if v != now and _allowed(side, {**original, name: v}))
    return next(others, None)


def _window(side: Side, clock: Clock, seconds: float) -> Generator[Symptom, None, Estimates]:
    """Yield the result of the meter and of each metric; return the metrics."""
    try:
        window = _measured(side, clock, seconds)
    except TuningError as error:
        yield _failed("the meter", error)
        return {}
    load = window.load()
    notes = window.notes()
    whys = f" ({notes[FAILURES]})" if FAILURES in notes else ""
    summary = f"{load.completed} items and {load.failed} failures{whys} in {window.seconds:.3g} s"
    hint = "check the requests of [load]" if whys else "keep the workload busy, or add a [load]"
    met = load.completed > 0 and not load.failed
    yield Symptom("the meter", met, summary, "" if load.completed else hint)
    if ONE_WITNESS in notes:
        yield Symptom("second witness", False, notes[ONE_WITNESS])
    estimates = window.estimates()
    for metric in side.metrics:
        name, unit = metric.name, metric.quantity.unit
        if (shown := estimates.get(name)) is None:
            hint = "check that there is load, or give a longer --window"
            yield Symptom(name, False, "not measured", hint)
        else:
            yield Symptom(name, True, f"{shown.mean:.4g} ± {shown.stderr:.2g} {unit}")
    return estimates


def _measured(side: Side, clock: Clock, seconds: float) -> TargetWindow:
    """Return a window that was measured and closed. Raises MeasurementError."""
    usage = Usage(os.cpu_count() or 1, time.process_time, suspended_s)
    window = TargetWindow(Target((), side), clock, usage)
    try:
        runs = side.meter.runs if isinstance(side.meter, MeasuresRuns) else 0
        listed, end = {m.name for m in side.metrics}, clock.monotonic() + LONGER * seconds
        for part in itertools.count(1):
            if not runs:
                clock.sleep(seconds / READS)
            while not window.wait(WAIT_S):
                continue
            window.read()
            left = listed - window.estimates().keys() and window.load().completed
            if part >= (runs or READS) and (runs or not left or clock.monotonic() >= end):
                break
        window.stop()
    except TuningError:
        window.discard()
        raise
    return window


def _effect(
    side: Side, knob: Knob, original: Setting, before: Estimates, clock: Clock, seconds: float
) -> Symptom:
    """Report from measurements whether a knob that cannot be read back has any effect.

    It is set to its value that is farthest in the list. A missing difference does not prove that the
    value is not in force, so it is only reported.
    """
    about, why = f"effect of {knob.name}", side.unproven[knob.name]
    places = sorted(
        knob.values, key=lambda v: -abs(knob.index(v) - knob.index(original[knob.name]))
    )
    value = next((v for v in places if _allowed(side, {**original, knob.name: v})), None)
    if value is None or value == original[knob.name] or not before:
        return Symptom(about, False, f"not tried; {why}")
    try:
        side.actuator.apply({**original, knob.name: value})
        after = _measured(side, clock, seconds).estimates()
    except TuningError as error:
        return _failed(about, error)
    listed = {metric.name for metric in side.metrics}
    changes = [
        f"{name} {was.mean:.4g} → {after[name].mean:.4g}"
        for name, was in before.items()
        if name in listed and name in after and _apart(was, after[name])
    ]
    change = f"{original[knob.name]} → {value}"
    if changes:
        return Symptom(
            about, True, f"{change}: {', '.join(changes)} (it cannot be read back: {why})"
        )
    return Symptom(
        about,
        False,
        f"{change} changed nothing that is measured, and {why}",
        "check manually that the service uses the value, or give a longer --window",
    )


def _allowed(side: Side, setting: Setting) -> bool:
    """Return whether the side's space has the setting."""
    try:
        side.space.check(setting)
    except TuningError:
        return False
    return True


def _apart(a: Estimate, b: Estimate) -> bool:
    """Return whether two means differ by more than chance does once in a few thousand times."""
    doubt = math.hypot(a.stderr, b.stderr)
    return abs(a.mean - b.mean) > max(APART * doubt, LEAST_CHANGE * abs(a.mean))


def _signal(signal: LiveSignal) -> Symptom:
    """Read a signal once, and return the result."""
    try:
        sample = signal.read()
    except TuningError as error:
        return _failed(signal.signal.name, error)
    now = "it is counted" if sample.present is None else f"{sample.present:.4g} now"
    return Symptom(signal.signal.name, True, now)


def _failed(about: str, error: TuningError) -> Symptom:
    """Return an error as a result."""
    return Symptom(about, False, error.message, error.hint or "")
