"""Simulated devices: DVFS physics calibrated on published figures, in their own time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from agents.devices.simulated.device import LONGEST_DELAY_S, Faults, SimulatedDevice
from agents.devices.simulated.meter import SimulatedMeter, metrics
from agents.devices.simulated.noise import mean_factor, quantile_factor
from agents.devices.simulated.presets import PRESETS, WORKLOADS, Preset
from agents.target.side import Side
from tuner import installed
from tuner.core import InvalidInput, Setting

__all__ = [
    "Faults",
    "SimulatedDevice",
    "SimulatedMeter",
    "attach",
    "known",
    "open_simulated",
    "truth",
]

VERSION = "simulator 1"
"""Increase it whenever the physics changes: older evidence then no longer counts."""
SERVERS_GROUP = "jouletune.simulated"
"""Simulated servers of language models, named `…-llm`; only a checkout has some."""
SERVER = "-llm"
DEFAULT_WORKLOAD = "resnet50"
SETTLE_S = LONGEST_DELAY_S + 3.0
"""Seconds to settle: the longest delay of a change plus part of the warm-up; the rest is in the noise."""


def open_simulated(rest: str, *, seed: int, state_dir: Path | None, root: Path) -> Side:
    """Open `PRESET[/WORKLOAD]`, in a checkout also `SERVER[/MODEL][@LOAD]`; its state is in `state_dir`.

    Raises:
        InvalidInput: unknown preset or workload, or unknown server, model or load.
        ConfigError: the state file belongs to another device.
    """
    if (open_server := _server(rest)) is not None:
        return open_server(rest, seed=seed, state_dir=state_dir)
    preset, workload = _chosen(rest)
    state_file = state_dir / f"{_name(preset, workload)}.json" if state_dir else None
    return attach(SimulatedDevice(preset, workload, seed=seed, state_file=state_file))


def attach(device: SimulatedDevice) -> Side:
    """Return a simulated device as an agent sees it."""
    preset = device.preset
    return Side(
        name=_name(preset, device.workload),
        kind="simulated",
        board=f"{preset.board} (simulated, {device.workload})",
        version=VERSION,
        space=device.space,
        metrics=metrics(preset.scope),
        actuator=device,
        meter=SimulatedMeter(device, preset.scope),
        clock=device,
        settle_s=SETTLE_S,
        cannot=preset.cannot,
    )


def known(rest: str) -> Callable[[Setting], Mapping[str, float]] | None:
    """Return `truth`; None for a server, whose load varies, so that it has no steady state."""
    return truth(rest) if _server(rest) is None else None


def truth(rest: str) -> Callable[[Setting], Mapping[str, float]]:
    """Return the noise-free steady state of `PRESET[/WORKLOAD]` as a function of the setting.

    The function returns every metric of the device by name. Raises InvalidInput here for an unknown
    preset or workload, and in the function for a setting outside the space.
    """
    preset, workload = _chosen(rest)
    space, work, chip = preset.space, preset.work(workload), preset.chip
    p50, p99, mean = quantile_factor(0.50), quantile_factor(0.99), mean_factor()

    def settled(setting: Setting) -> Mapping[str, float]:
        space.check(setting)
        point = preset.point(setting)
        pace, watts = chip.settled(work, point)
        batch_ms = pace.step_s * 1000.0
        return {
            "energy_j": watts * pace.step_s / point.batch,
            "power_w": watts,
            "latency_p50_ms": batch_ms * p50,
            "latency_p99_ms": batch_ms * p99,
            "latency_mean_ms": batch_ms * mean,
            "throughput_per_s": point.batch / pace.step_s,
        }

    return settled


def _chosen(rest: str) -> tuple[Preset, str]:
    """Return the preset and workload of `PRESET[/WORKLOAD]`. Raises InvalidInput."""
    name, _, workload = rest.partition("/")
    workload = workload or DEFAULT_WORKLOAD
    if name not in PRESETS:
        raise InvalidInput(
            f"there is no simulated device {name!r}",
            hint=f"choose one of {', '.join((*PRESETS, *installed.names(SERVERS_GROUP, {})))}",
        )
    if workload not in WORKLOADS:
        raise InvalidInput(
            f"the simulated {name} does not run {workload!r}",
            hint=f"choose one of {', '.join(WORKLOADS)}",
        )
    return PRESETS[name], workload


def _server(rest: str) -> Callable[..., Side] | None:
    """Return the function that opens a server of language models; None if `rest` names no server."""
    name = rest.partition("@")[0].partition("/")[0]
    opener: Callable[..., Side] | None = installed.load(SERVERS_GROUP, {}, name)
    if opener is None and name.endswith(SERVER) and not installed.names(SERVERS_GROUP, {}):
        raise installed.only_in_a_checkout(f"simulated:{name}")
    return opener


def _name(preset: Preset, workload: str) -> str:
    """Return the device's name: of the preset and the simulated workload."""
    return f"simulated-{preset.name}-{workload}"
