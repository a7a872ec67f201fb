"""A Jetson board for an agent: a side with all its clocks, or with its power mode.

Source: PolyThrottle (appendix A) for the combination of knobs. Ours: a board with clocks fixed by
jetson_clocks is only measured, because its user wants them fixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from agents.actuator.kernel_text import numbers
from agents.actuator_client.client import RemoteKnobs, actuator_socket, reached
from agents.actuator_client.offered import Choose, kind_of
from agents.devices.jetson.board import read_board
from agents.devices.jetson.knobs import GPU, KNOBS, MEMORY, gpus
from agents.devices.jetson.rails import find_monitors
from agents.host.machine import HostClock, text_of
from agents.target.host_meter import Ceiling, HostMeter
from agents.target.joules import IntegratedJoules, in_background
from agents.target.side import NothingToSet, Side
from tuner.core import InvalidInput, Metric, Role, Scope, Space, Value

CLOCKS, MODES = "jetson", "nvpmodel"
"""The actuator's names for a board's clocks and for its power modes."""
MODE = "board.power_mode"
ROLES = {
    GPU: Role.CORE_CLOCK,
    MEMORY: Role.MEMORY_CLOCK,
    KNOBS[2]: Role.HOST_CLOCK,
}
MEMORY_CAP = "sys/kernel/nvpmodel_emc_cap/emc_iso_cap"
MOST_RUNGS = 10
"""Largest number of CPU clocks offered; some boards have 29."""
MOST_W = 300.0
"""Upper bound of a board's power: the largest module is rated at 130 W."""
STRAYS = 1.05
"""A clock may exceed its ceiling by this factor, because it varies by a step."""
SLOW_NOTHING = ("fan", "hot-surface-alert")
"""Names of cooling devices that do not lower a clock."""
SETTLE_S = 0.5
"""Ten sampling periods of the power monitors."""
NO_BOARD = "no Jetson board: the device tree names none"
FIXED = "jetson_clocks has fixed the clocks: run `jetson_clocks --restore`"
NO_TOTAL = "the rails {names} give no known total ({missing}); `jouletune doctor` lists them"


def open_jetson(rest: str, *, seed: int, state_dir: Path | None, root: Path) -> Side:
    """Open `jetson`, the board's clocks, or `jetson:mode`, its power mode.

    Raises:
        InvalidInput: this is not a Jetson board, or `jetson` has another option.
    """
    if rest not in ("", "mode"):
        raise InvalidInput(
            f"the device jetson has no option {rest!r}", hint="write jetson or jetson:mode"
        )
    board = read_board(root)
    if board is None:
        raise InvalidInput(NO_BOARD, hint="try --device simulated:orin")
    clock, monitors = HostClock(), find_monitors(root)
    metrics = tuple(Metric(name, scope=Scope.MODULE) for name in ("energy_j", "power_w"))
    names = ", ".join(monitors.rails) or "none"
    why = NO_TOTAL.format(names=names, missing=monitors.missing_rails)
    unmetered = {} if monitors.total else {m.name: why for m in metrics}
    uuid, knobs = (MODES, (MODE,)) if rest else (CLOCKS, KNOBS)
    remote, cannot = reached(actuator_socket(root), uuid, clock, knobs, worth_trying(root), ROLES)
    if remote and GPU in remote.space.default and is_fixed(root, remote.space.default[GPU]):
        remote.close()
        remote, cannot = None, dict.fromkeys(knobs, FIXED)
    total = " + ".join(rail.name for rail in monitors.total)
    averaging = f" ({monitors.averaging})" if monitors.averaging else ""
    return Side(
        name=f"jetson-{rest}" if rest else "jetson",
        kind="jetson",
        board=board.model,
        version=board.jetpack,
        space=remote.space if remote else Space(()),
        metrics=metrics if monitors.total else (),
        actuator=remote or NothingToSet(),
        meter=HostMeter(
            stat=root / "proc/stat",
            joules=(lambda: IntegratedJoules(monitors.power_w, clock, in_background, MOST_W))
            if monitors.total
            else None,
            watch=lambda: lambda: bool(throttles(root) or (remote and remote.throttled)),
            ceilings=lambda: gpu_ceiling(root, remote),
            clock=clock,
        ),
        settle_s=SETTLE_S,
        cannot={**cannot, **unmetered},
        source=f"the power of {total}, integrated{averaging}" if total else "",
    )


def gpu_ceiling(root: Path, remote: RemoteKnobs | None) -> Iterator[Ceiling]:
    """Yield the ceiling that we have set on the GPU's clock; nothing while it is at its original value."""
    requested = remote.applied.get(GPU) if remote else None
    if remote and requested is not None and requested != remote.space.default[GPU]:
        for node in gpus(root)[:1]:
            hz = float(requested) * 1e6
            yield Ceiling(node / "cur_freq", hz, hz * STRAYS)


def is_fixed(root: Path, most_mhz: Value) -> bool:
    """Return whether the GPU's clock is fixed as by jetson_clocks: its minimum is its original maximum.

    `most_mhz` is that maximum. Only root can see a fixed memory clock; the actuator restores its original
    value.
    """
    floors = [hz for node in gpus(root)[:1] for hz in numbers(node / "min_freq")]
    return any(hz / 1e6 >= float(most_mhz) for hz in floors)


def throttles(root: Path) -> list[str]:
    """Return the types of the cooling devices that slow the board now; fans and warnings are left out.

    Source: NVIDIA's nvpmodel_indicator.py: a hot surface (from 70 °C on) is no throttling.
    """
    states = root.glob("sys/class/thermal/cooling_device*/cur_state")
    hot = [state for state in states if text_of(state).strip() not in ("", "0")]
    kinds = (text_of(state.with_name("type")).strip() for state in hot)
    return [kind for kind in kinds if not any(name in kind for name in SLOW_NOTHING)]


def worth_trying(root: Path) -> Choose:
    """Return the filter of granted values for trials: none exceeds the limits of the power mode."""

    def choose(knob: str, values: Sequence[Value], original: Value) -> Sequence[Value]:
        if isinstance(values[0], str):
            return values
        caps = [hz / 1e6 for hz in numbers(root / MEMORY_CAP) if hz and knob == MEMORY]
        if knob == GPU or kind_of(knob) == KNOBS[2]:
            caps = [float(original)]
        capped = [value for value in values if all(float(value) <= cap for cap in caps)] or values
        step = max(1, -(-len(capped) // MOST_RUNGS)) if kind_of(knob) == KNOBS[2] else 1
        return sorted(capped)[::-1][::step]

    return choose
