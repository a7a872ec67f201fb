"""Pictures by matplotlib, which an operator may not have installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def empty(width: float, height: float) -> Figure:
    """Return a picture of this size in inches. Raises ConfigError: matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        hint = "pip install 'jouletune[client]'"
        raise ConfigError("matplotlib is not installed", hint=hint) from None
    return Figure(figsize=(width, height), layout="constrained")
