"""What the allocator alone brings to four published models: `python -m tests.engines.allocators --json`."""

from __future__ import annotations

from typing import Annotated

import typer

from tests.engines.models import models as models_of
from tuner.cli.bench_allocators import compare
from tuner.cli.options import AsJson


def main(
    models: Annotated[str, typer.Option(metavar="A,B,…")] = "mobilenet,resnet50,gpt2,bert",
    batches: Annotated[str, typer.Option(metavar="A,B,…")] = "1,2,4,8,16",
    turns: Annotated[int, typer.Option(min=2)] = 4,
    window_s: Annotated[float, typer.Option(metavar="S", min=0.05)] = 1.0,
    most_foreign: Annotated[float, typer.Option(metavar="SHARE", min=0.0)] = 0.05,
    as_json: AsJson = False,
) -> None:
    """Time one instance on all cores with each allocator at hand against glibc as it comes, in turns."""
    compare(models_of(models), batches, turns, window_s, most_foreign, as_json=as_json)


if __name__ == "__main__":
    typer.run(main)
