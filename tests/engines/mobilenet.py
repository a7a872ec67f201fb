"""An image classifier shaped like MobileNetV2 (Sandler et al. 2018, table 2), in plain torch.nn.

The weights are random: timing needs no trained ones.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

CLASSES = 1000
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, blocks and first stride of each stage."""
STEM = 32
LAST = 1280


class Inverted(nn.Module):
    """A wide depthwise convolution between two narrow ends, with a shortcut if the ends are equal."""

    def __init__(self, inside: int, outside: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inside * expansion
        widen = [] if expansion == 1 else [_convolution(inside, wide, 1)]
        self.body = nn.Sequential(
            *widen,
            _convolution(wide, wide, 3, stride, groups=wide),
            nn.Conv2d(wide, outside, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.short = stride == 1 and inside == outside

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's activation."""
        y: Tensor = self.body(x)
        return x + y if self.short else y


def mobilenet(seed: int, width: int) -> nn.Module:
    """Return the network in eval mode; the same seed and width give the same weights."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = [_convolution(3, width, 3, 2)]
    inside = width
    for expansion, channels, blocks, first in STAGES:
        outside = channels * width // STEM
        for block in range(blocks):
            layers.append(Inverted(inside, outside, first if not block else 1, expansion))
            inside = outside
    last = LAST * width // STEM
    layers += [_convolution(inside, last, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(last, CLASSES)).eval()


def _convolution(
    inside: int, outside: int, size: int, stride: int = 1, *, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU6(inplace=True),
    )
