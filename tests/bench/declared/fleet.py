"""A made-up fleet of devices with labels, and the file that declares its studies."""

from __future__ import annotations

from db import Store
from policies import load_policy
from tests.builders import device
from tuner.main import utc_now
from tuner.service.operations import Operations
from tuner.study.loop import Loop
from tuner.wire import FleetDraft

RACKS = 10


def fleet_text(trials: int = 20) -> str:
    """Return a file with one group per rack, and one window for all."""
    head = '[exploration]\nwindows = [{ cron = "0 2 * * sat", hours = 4 }]\n'
    groups = (
        f'[[group]]\nname = "rack {n}"\nselect = {{ rack = "r{n}" }}\npolicy = "sobol"\n'
        f'constraints = ["latency_p99_ms <= 1.2x baseline"]\nterms = {{ trials = {trials} }}\n'
        for n in range(RACKS)
    )
    return "\n".join([head, *groups])


def register(store: Store, count: int) -> None:
    """Store devices, spread over the racks."""
    for number in range(count):
        labels = {"rack": f"r{number % RACKS}"}
        store.devices.put(device(f"gpu{number}@host{number // 8}", labels=labels))


def draft(text: str, expects: str = "") -> FleetDraft:
    return FleetDraft(lines=tuple(text.splitlines()), who="bench", expects=expects)


def operations_on(store: Store) -> Operations:
    """Return the operator's verbs over a store."""
    return Operations(Loop(store, load_policy, utc_now))
