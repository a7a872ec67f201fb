"""The devices that an agent can open: those below, and `jouletune.devices` of other packages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from agents.host.symptoms import Symptom
from agents.target.side import Side
from tuner import installed
from tuner.core import (
    InvalidInput,
    Limit,
    MetricUnavailable,
    Objective,
    Setting,
    Space,
    TuningError,
)

GROUP = "jouletune.devices"
DEVICES = MappingProxyType(
    {
        "cpu": "agents.devices.cpu.device:open_cpu",
        "drm": "agents.devices.drm.device:open_drm",
        "jetson": "agents.devices.jetson.device:open_jetson",
        "nvidia": "agents.devices.nvidia.device:open_nvidia",
        "simulated": "agents.devices.simulated:open_simulated",
        "unit": "agents.devices.unit.device:open_unit",
    }
)
"""Kind of device to the function that opens one; imported only when chosen."""

IN_A_CHECKOUT = ("replay",)
"""Kinds that only a checkout has: the package of its benches provides them by entry points."""

TRUTHS_GROUP = "jouletune.truths"
TRUTHS = MappingProxyType({"simulated": "agents.devices.simulated:known"})
"""Kinds with true values, and the function that returns them."""

DIAGNOSES_GROUP = "jouletune.diagnoses"
DIAGNOSES = MappingProxyType(
    {
        "cpu": "agents.devices.cpu.diagnosis:examine",
        "drm": "agents.devices.drm.diagnosis:examine",
        "jetson": "agents.devices.jetson.diagnosis:examine",
        "nvidia": "agents.devices.nvidia.diagnosis:examine_host",
    }
)
"""Kinds of real hardware, and the function that diagnoses each."""

Truth = Callable[[Setting], Mapping[str, float]]
"""A setting to the true value of every metric."""


def open_device(spec: str, *, seed: int, state_dir: Path | None, root: Path = Path("/")) -> Side:
    """Open a device by its kind and the text after the colon.

    `cpu`, `drm:ADDRESS`, `jetson[:mode]`, `nvidia:INDEX|UUID`, `simulated:PRESET[/WORKLOAD]`,
    `unit:NAME.service`, in a checkout `replay:FILE[#SURFACE]`. A package's entry point is called alike,
    with the text after its name and the colon. `seed` fixes a simulated device's noise, `state_dir` stores
    its setting, and `root` is the filesystem in which a real device is searched.

    Raises:
        InvalidInput: there is no such kind, GPU, preset, workload, file or surface, or the package
            that provides the kind cannot be imported.
        ConfigError: a file beside it is wrong.
        ActuationError: the device does not answer.
    """
    _, opener, rest = _parsed(spec)
    side: Side = opener(rest, seed=seed, state_dir=state_dir, root=root)
    return side


def examine(root: Path) -> Iterator[Symptom]:
    """Yield the symptoms of every kind of device on the host at `root`; changes nothing.

    A package may provide a function of `root` as `jouletune.diagnoses`, under the name of its device.
    Without it only the loading of that device is checked.
    """
    for kind in installed.names(GROUP, DEVICES):
        try:
            look = installed.load(DIAGNOSES_GROUP, DIAGNOSES, kind)
            if look is not None:
                yield from look(root)
            elif kind not in DEVICES:
                installed.load(GROUP, DEVICES, kind)
                yield Symptom(kind, True, "from an installed package without a description")
        except TuningError as error:
            yield Symptom(kind, False, error.message, error.hint)
        except Exception as error:  # noqa: BLE001 - in another package: the other kinds are still listed
            yield Symptom(
                kind,
                False,
                f"{type(error).__name__}: {error}",
                "repair the package that provides it",
            )


def specs_in(spec: str) -> list[str]:
    """Return the devices that a spec combines: `nvidia:0+cpu` is two."""
    kinds = "|".join(map(re.escape, (*installed.names(GROUP, DEVICES), *IN_A_CHECKOUT)))
    return re.split(rf"\+(?=(?:{kinds})(?:[:+]|$))", spec)


def known_truth(spec: str) -> Truth | None:
    """Return the true values behind a device, None if they can only be measured.

    Raises:
        InvalidInput: there is no such kind, preset, workload, file or surface.
    """
    if len(specs_in(spec)) > 1:
        return None
    kind, _, rest = _parsed(spec)
    truths = installed.load(TRUTHS_GROUP, TRUTHS, kind)
    truth: Truth | None = None if truths is None else truths(rest)
    return truth


def true_score(objective: Objective, values: Mapping[str, float]) -> float:
    """Return an objective's value from true metrics. Raises MetricUnavailable if they lack its metric."""
    score = objective.score(values)
    if score is None:
        raise MetricUnavailable(
            f"the true {objective.metric} is unknown",
            hint=f"choose one of: {', '.join(values)}",
        )
    return score


def oracle(
    space: Space, truth: Truth, objective: Objective, limits: Sequence[Limit] = ()
) -> Setting | None:
    """Return the setting with the best true score that keeps the limits, None if no setting does."""
    best: tuple[float, Setting] | None = None
    for setting in space.grid():
        values = truth(setting)
        score = objective.sign * true_score(objective, values)
        if all(limit.holds(values[limit.metric]) for limit in limits) and (
            best is None or score < best[0]
        ):
            best = (score, setting)
    return None if best is None else best[1]


def _parsed(spec: str) -> tuple[str, Callable[..., Side], str]:
    """Return a device's kind, the function that opens it, and the text after the kind."""
    kind, _, rest = spec.partition(":")
    opener = installed.load(GROUP, DEVICES, kind)
    if opener is None and kind in IN_A_CHECKOUT:
        raise installed.only_in_a_checkout(kind)
    if opener is None:
        others = installed.names(GROUP, DEVICES)[len(DEVICES) :]
        more = f"; from other packages: {', '.join(others)}" if others else ""
        raise InvalidInput(
            f"there is no device {spec!r}",
            hint=f"choose one like cpu, nvidia:0, jetson or simulated:a100{more}",
        )
    return kind, opener, rest
