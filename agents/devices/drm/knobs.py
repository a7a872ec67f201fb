"""The GPUs of AMD and Intel that root finds, by their PCI addresses."""

from pathlib import Path

from agents.actuator.driver import Absent
from agents.devices.drm.amd import AmdCard
from agents.devices.drm.card import FILES, Card
from tuner.errors import ActuationError


def discover(path: str = "/") -> list[Card | Absent]:
    """Return the GPUs of the kernel drivers above at `path`; one that cannot be read is absent."""
    listed: list[Card | Absent] = []
    for kind in FILES:
        for folder in sorted(Path(path).glob(f"sys/bus/pci/drivers/{kind}/*:*")):
            uuid = f"drm:{folder.name}"
            try:
                card = (AmdCard if kind == "amdgpu" else Card)(folder, kind, uuid)
                card.read()
                listed.append(card)
            except ActuationError as error:  # its files tell which kind of card it is
                listed.append({"uuid": uuid, "absent": str(error)})
    return listed
