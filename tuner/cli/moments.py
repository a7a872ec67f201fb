"""The options that take a moment; see `tuner.moments`."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.moments import FORMS

Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help=f"From then on: {FORMS}; 2d is two days ago.")
]
Until = Annotated[
    str, typer.Option("--until", metavar="TIME", help="Before that time, in the same forms.")
]
