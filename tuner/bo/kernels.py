"""Covariances that more than one model uses."""

from __future__ import annotations

import math

from torch import Tensor


def matern(distance: Tensor) -> Tensor:
    """Return the Matérn-5/2 correlation at a distance in length scales."""
    scaled = math.sqrt(5.0) * distance
    return (1.0 + scaled + scaled.square() / 3.0) * (-scaled).exp()
