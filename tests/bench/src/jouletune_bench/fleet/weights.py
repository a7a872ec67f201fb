"""A model's weights as Flower's arrays, and back."""

from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord

from jouletune_bench.fleet.task import Weights


def arrays_of(weights: Weights) -> ArrayRecord:
    """Return weights in the form of a message."""
    return ArrayRecord([np.ascontiguousarray(layer) for layer in weights])


def weights_of(arrays: ArrayRecord) -> Weights:
    """Return the weights in a message."""
    return tuple(arrays.to_numpy_ndarrays())
