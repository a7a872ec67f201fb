"""A fleet file's changes, as the command line lists them."""

from __future__ import annotations

from tuner.cli.fleet.declared import _lines
from tuner.wire import FleetChange, FleetDiff


def change(action: str, **of: object) -> FleetChange:
    fields = {"group": "", "devices": (), "study": "", "revision": 0, "details": ("why",), **of}
    return FleetChange.model_validate({"action": action, **fields})


def test_budgets_are_listed_beside_studies() -> None:
    changes = (
        change("change", budget="rack-a"),
        change("create", devices=("gpu0",), group="web"),
        change("stop", budget="rack-b"),
    )
    diff = FleetDiff(changes=changes, same=2, same_budgets=1, digest="", fingerprint="")
    assert list(_lines(diff)) == [
        "change budget rack-a",
        "    why",
        "create a study of gpu0 (group web)",
        "    why",
        "release budget rack-b",
        "    why",
        "3 changes to make; 2 studies and 1 budget are as declared",
    ]
