"""The inputs and outputs of the benches are the same as when they were part of the wheel."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.bench.allocators.allocators import AllocatorGain
from tests.bench.commands import commands
from tests.bench.contest.contest import Standings
from tests.bench.devices.boards import Answer, BoardRow
from tests.bench.federated.compare import FederationComparison
from tests.bench.federated.judge import Group
from tests.bench.fleet.fleet import SimulationFigures
from tests.bench.load.cells import CellRow

FROZEN: dict[str, Any] = json.loads(Path(__file__).with_name("frozen.json").read_text())


def keys(kind: Any) -> object:  # noqa: ANN401
    """Return the keys of a type's JSON, at all levels."""
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return {f.name: keys(hints[f.name]) for f in fields(kind)}
    origin = typing.get_origin(kind)
    inner = [a for a in typing.get_args(kind) if a not in (type(None), Ellipsis)]
    if origin in (typing.Union, types.UnionType):
        return keys(inner[0]) if len(inner) == 1 else "scalar"
    if origin in (tuple, list, Sequence):
        return [keys(inner[0])]
    if origin in (dict, Mapping):
        return {"*": keys(inner[-1])}
    return "value"


WRITTEN: dict[str, object] = {
    "surfaces": keys(Standings),
    "made-up": keys(Standings),
    "devices": {
        "slack": "value",
        "trials": "value",
        "rows": [keys(BoardRow)],
        "studies": [keys(Answer)],
    },
    "allocators": {"cores": "value", "gains": [keys(AllocatorGain)]},
    "federated": {
        "federations": [keys(FederationComparison)],
        **dict.fromkeys(("sure", "sure_and_reached", "missed"), "value"),
        **dict.fromkeys(("hopeless", "hopeless_and_reached"), "value"),
        "groups": [keys(Group)],
    },
    "fleet": keys(SimulationFigures),
    "load": {"cells": [keys(CellRow)]},
}


def plain(default: object) -> object:
    return default if default is None or isinstance(default, int | float | str) else str(default)


@pytest.mark.parametrize("verb", list(FROZEN))
def test_a_bench_takes_the_options_it_took(verb: str) -> None:
    command = typer.main.get_command(commands).commands[verb]  # type: ignore[attr-defined]
    taken = {
        "/".join((*p.opts, *p.secondary_opts)): plain(p.default)
        for p in command.params
        if p.name != "help"
    }
    assert taken == FROZEN[verb]["options"]


@pytest.mark.parametrize("verb", list(WRITTEN))
def test_a_bench_writes_the_keys_it_wrote(verb: str) -> None:
    assert WRITTEN[verb] == FROZEN[verb]["keys"]
