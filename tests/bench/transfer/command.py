"""`python -m tests.bench transfer`: how a fleet of identical devices reaches its holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tests.bench.result import header
from tests.bench.transfer.verify import verified


def transfer(
    part: Annotated[str, typer.Argument(help="The only part: verify.")] = "verify",
    seed: Annotated[int, typer.Option(help="Which devices are made up.")] = 1,
    output: Annotated[Path, typer.Option(help="The JSON file.")] = Path(
        "build/bench/transfer.json"
    ),
) -> None:
    """Let a hundred like devices, and three odd ones, search or verify the setting that others hold."""
    if part != "verify":
        raise typer.BadParameter(f"there is no part {part!r}; the only one is verify")
    output.parent.mkdir(parents=True, exist_ok=True)
    found = header(seed) | {"verify": verified(seed=seed)}
    output.write_text(f"{json.dumps(found, indent=1)}\n")
