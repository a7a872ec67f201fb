"""An AMD or Intel GPU for an agent: set through the actuator's socket, measured directly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from agents.actuator_client.client import RemoteKnobs, actuator_socket, reached
from agents.actuator_client.offered import thinned
from agents.devices.drm.card import CLOCK, LIMIT, Card
from agents.devices.drm.energy import find_energy, metrics_format
from agents.devices.drm.knobs import discover
from agents.host.machine import HostClock, text_of
from agents.target.host_meter import Ceiling, HostMeter
from agents.target.joules import in_background
from agents.target.side import HOST_CPU, NothingToSet, Side
from tuner.core import DeviceLost, InvalidInput, Metric, Role, Scope, Space, Value

ROLES = {CLOCK: Role.CORE_CLOCK, LIMIT: Role.POWER_LIMIT}
RUNS = {
    "hwmon/hwmon*/freq1_input": 1e6,
    "tile0/gt0/freq0/act_freq": 1.0,
    "drm/card*/gt/gt0/rps_act_freq_mhz": 1.0,
}
"""File of the core clock that runs to its steps in a MHz."""
HEAT = ("tile*/gt*/freq0/throttle/reason_thermal", "drm/card*/gt/gt*/throttle_reason_thermal")
STRAYS = 1.05
"""A clock may exceed its ceiling by this factor, because it varies by a step. Ours."""
APUS = ("0x74a0",)
"""Products of MI300A: an APU whose gpu_metrics have the format of a card."""
TWO_DIES = ("0x7408", "0x740c")
"""Products of MI250 and MI250X: the first of two devices has the power of both (codecarbon 1097)."""
UNDIVIDED = (": ", ": SPX", ": UNKNOWN", ": 0")
"""The ends of what `shared_by` finds on a board with one user."""
MOST_RUNGS = 12
SETTLE_S = 1.0
"""AMD's average covers up to a second."""


def open_drm(rest: str, *, seed: int, state_dir: Path | None, root: Path) -> Side:
    """Open `drm:ADDRESS`, a GPU by its PCI address such as 0000:03:00.0.

    Raises:
        InvalidInput: no driver of an AMD or Intel GPU has such a device.
        DeviceLost: it is in a reset, or asleep.
    """
    card = chosen(rest, root)
    clock = HostClock()
    energy = find_energy(card.folder, clock, in_background)
    whole, host = integrated(card), frozenset({HOST_CPU})
    scope = Scope.MODULE if whole else Scope.BOARD
    metrics = tuple(Metric(name, scope=scope) for name in ("energy_j", "power_w"))
    unmetered = {} if energy.open else {metric.name: energy.why_not for metric in metrics}
    remote, cannot = reached(
        actuator_socket(root), card.uuid, clock, card.knobs, worth_trying, ROLES
    )
    return Side(
        name=f"drm-{card.folder.name}",
        kind="drm",
        spec=card.uuid,
        board=card.board,
        version=text_of(root / "proc/sys/kernel/osrelease").strip() or "unknown",
        space=remote.space if remote else Space(()),
        metrics=metrics if energy.open else (),
        actuator=remote or NothingToSet(),
        meter=HostMeter(
            stat=root / "proc/stat",
            joules=energy.open,
            watch=lambda: lambda: throttled(card.folder),
            ceilings=lambda: ceilings(card.folder, remote),
            clock=clock,
        ),
        settle_s=SETTLE_S,
        cannot={**cannot, **(remote.without if remote else {}), **unmetered},
        source=energy.source,
        shared=shared_by(card.folder),
        energy_of=frozenset({card.uuid}) | (host if whole else set()),
        perhaps_of=host if whole is None else frozenset(),
    )


def chosen(rest: str, root: Path) -> Card:
    """Return the GPU with a PCI address. Raises InvalidInput, DeviceLost."""
    cards = {str(c.uuid if isinstance(c, Card) else c["uuid"]): c for c in discover(str(root))}
    card = cards.get(f"drm:{rest}")
    if card is None:
        names = ", ".join(cards) or "none: amdgpu, xe and i915 have no device"
        raise InvalidInput(f"there is no GPU drm:{rest}", hint=f"available: {names}")
    if not isinstance(card, Card):
        raise DeviceLost(card["absent"], hint="wait for the end of its reset")
    return card


def integrated(card: Card) -> bool | None:
    """Return whether a GPU is part of the processor, whose power its sensor then includes; None if unknown.

    Formats 2 and 3 of AMD's gpu_metrics are of APUs, format 1 of cards; those before Vega 12 have none.
    A power limit does not distinguish them: the APU Van Gogh has one, cards of Southern Islands do not.
    MI300A has format 1.
    """
    if card.kind != "amdgpu":
        return False
    if text_of(card.folder / "device").strip() in APUS:
        return True
    return {1: False, 2: True, 3: True}.get(metrics_format(card.folder))


def shared_by(device: Path) -> str:
    """Return why a GPU's joules are shared, for messages; empty if they are not."""
    if text_of(device / "device").strip() in TWO_DIES:
        return "the card's two dies have one sensor: the energy is that of both"
    names = {"current_compute_partition": "partitions", "sriov_numvfs": "virtual functions"}
    parts = (f"{what}: {text_of(device / file).strip()}" for file, what in names.items())
    cut = "; ".join(part for part in parts if not part.endswith(UNDIVIDED))
    return f"the energy is that of the whole board ({cut})" if cut else ""


def throttled(device: Path) -> bool:
    """Return whether heat lowers the clock now; AMD's driver does not say so."""
    return any(text_of(file).strip() == "1" for name in HEAT for file in device.glob(name))


def ceilings(device: Path, remote: RemoteKnobs | None) -> Iterator[Ceiling]:
    """Yield the ceiling that we have set on the core clock."""
    mhz = remote.applied.get(CLOCK) if remote else None
    if remote and mhz is not None and mhz != remote.space.default[CLOCK]:
        for name, unit in RUNS.items():
            for file in device.glob(name):
                yield Ceiling(file, float(mhz) * unit, float(mhz) * unit * STRAYS)


def worth_trying(knob: str, values: Sequence[Value], original: Value) -> Sequence[Value]:
    """Return the values worth a trial: closer neighbours differ by less than noise."""
    return thinned(values, MOST_RUNGS)
