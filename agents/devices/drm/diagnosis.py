"""Diagnosis of AMD and Intel GPUs: their symptoms, each with a one-line cure. Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agents.devices.drm.card import Card
from agents.devices.drm.device import open_drm
from agents.devices.drm.knobs import discover
from agents.host.symptoms import SHARED, Symptom, rights, settable
from tuner.core import TuningError

NO_KNOB = "its kernel driver decides this; a newer kernel may offer more"
NO_ENERGY = "a virtual function or an integrated GPU has no sensor: measure the host's CPU with it"


def examine(root: Path) -> Iterator[Symptom]:
    """Yield the symptoms of every GPU of amdgpu, xe and i915 at `root`; nothing without one."""
    for card in discover(str(root)):
        if isinstance(card, Card):
            yield from _one(card, root)
        else:
            yield Symptom(str(card["uuid"]), False, card["absent"], "wait, or see `dmesg`")


def _one(card: Card, root: Path) -> Iterator[Symptom]:
    """Yield one GPU's knobs, rights and energy."""
    about = card.uuid
    try:
        side = open_drm(card.folder.name, seed=0, state_dir=None, root=root)
        ranges, shown, without = card.ranges(), card.read(), card.without
    except TuningError as error:
        yield Symptom(about, False, error.message, error.hint)
        return
    try:
        yield Symptom(about, True, f"{card.board}, driver {card.kind}")
        for knob, offered in ranges.items():
            yield settable(f"{about}: {knob}", offered, shown.get(knob) or "not shown")
        for knob, why in without.items():
            yield Symptom(f"{about}: {knob}", None, why, NO_KNOB)
        granted = [knob.name for knob in side.space.knobs]
        if granted or ranges:
            yield rights(about, granted, side.cannot.get(next(iter(ranges), ""), ""), "drm")
        if side.shared:
            yield Symptom(f"{about}: sharing", False, side.shared, SHARED)
        if side.source:
            yield Symptom(f"{about}: energy", True, side.source)
        else:
            yield Symptom(f"{about}: energy", None, side.cannot["energy_j"], NO_ENERGY)
    finally:
        side.close()
