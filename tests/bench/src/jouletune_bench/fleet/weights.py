"""A model's weights as Flower's arrays, and back."""

from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord

from jouletune_bench.fleet.task import Weights


def arrays_of(weights: Weights) -> ArrayRecord:
    """Return weights as they are sent."""
    return ArrayRecord([np.ascontiguousarray(layer) for layer in weights])


def weights_of(arrays: ArrayRecord) -> Weights:
    """Return what was sent as weights."""
    return tuple(arrays.to_numpy_ndarrays())
