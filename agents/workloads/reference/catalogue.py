"""Descriptions of models for workers: their inputs, and the functions that build them.

They need no torch, so that the front of the server, which only moves inputs, stays light.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Model:
    """One item's input, and the function `(seed, width) -> nn.Module` that builds the model.

    `dtype` is numpy's name; `below` bounds whole-number inputs (tokens), 0 for images. `width` is the
    published width, in channels of the first stage or in hidden units, at which the model has
    `parameters` of 4 bytes.
    """

    name: str
    built_by: str
    shape: tuple[int, ...]
    dtype: str
    below: int
    width: int
    parameters: int

    def text(self) -> str:
        """Return the model as a line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def parsed(cls, text: str) -> Model:
        """Return the model that a line of JSON describes."""
        fields = json.loads(text)
        return cls(**{**fields, "shape": tuple(fields["shape"])})

    def weight_bytes(self, width: int) -> int:
        """Return the approximate size of the weights in bytes, which grows with the square of the width."""
        return int(4 * self.parameters * (width / self.width) ** 2)


REFERENCE = Model(
    name="reference",
    built_by="agents.workloads.reference.resnet18:classifier",
    shape=(3, 96, 96),
    dtype="float32",
    below=0,
    width=32,
    parameters=2_824_580,
)
"""The small ResNet-18 that the reference server serves."""
