"""Power between requests: the draw of the devices with the workload's model in memory, and without it.

Users report that a loaded context alone draws power: 80 W on one card
(github.com/ollama/ollama/issues/8591; also github.com/ggml-org/llama.cpp/issues/25570).
"""

from __future__ import annotations

from collections.abc import Callable

from agents.target.measured import MeasuredTarget
from agents.target.side import IdleState, MeasuredSide
from agents.target.window import TargetWindow, Usage
from tuner.core import IDLE, IDLE_UNLOADED, POWER, Clock, Estimate, Setting, Value

IDLE_S, BATCHES = 3.0, 6
"""The length in s of a measurement, and its readings, which give its error: our choice."""
UNLOAD_GRACE_S = 5.0
"""A model may leave memory this much later than its delay."""
LONGEST_DELAY_S = 60.0
"""No unload with a longer delay is awaited."""
METRICS = {IdleState.LOADED: IDLE, IdleState.UNLOADED: IDLE_UNLOADED}
LOOK_S = 0.5

Pause = Callable[[float], None]
"""Waits some seconds; raises Conflict once the measurement must end."""


def idle_power(
    target: MeasuredTarget[MeasuredSide],
    setting: Setting,
    clock: Clock,
    usage: Usage,
    pause: Pause,
) -> dict[str, Estimate]:
    """Return the idle power in W by metric; empty if no device has a meter, or requests arrive.

    If the workload has a knob for the unload delay, the power is also measured after the unload.

    Raises:
        MeasurementError: a meter does not answer.
    """
    workload = target.workload
    names = [metric.name for metric in target.metrics]
    if workload is None or workload.idle is None or IDLE not in names:
        return {}
    look, devices = workload.idle.look, MeasuredTarget(target.devices)
    powers = _measured(devices, look, clock, usage, pause)
    delay_s = _delay_s(setting.get(workload.idle.delay_knob))
    if IDLE_UNLOADED not in powers and 0.0 < delay_s <= LONGEST_DELAY_S:
        until = clock.monotonic() + delay_s + UNLOAD_GRACE_S
        while look() is not IdleState.UNLOADED and clock.monotonic() < until:
            pause(LOOK_S)
        powers |= _measured(devices, look, clock, usage, pause)
    return powers


def _measured(
    devices: MeasuredTarget[MeasuredSide],
    look: Callable[[], IdleState],
    clock: Clock,
    usage: Usage,
    pause: Pause,
) -> dict[str, Estimate]:
    """Return one window's power by the workload's state; empty if the state changed, or was busy."""
    before = look()
    if before not in METRICS:
        return {}
    window = TargetWindow(devices, clock, usage)
    try:
        for _ in range(BATCHES):
            pause(IDLE_S / BATCHES)
            window.read()
        window.stop()
    except BaseException:
        window.discard()
        raise
    power = window.estimates().get(POWER)
    return {METRICS[before]: power} if power is not None and look() is before else {}


def _delay_s(value: Value | None) -> float:
    """Return an unload delay in s; 0 if the knob has no number."""
    return float(value) if isinstance(value, int | float) else 0.0
