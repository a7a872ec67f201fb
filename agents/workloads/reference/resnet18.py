"""An image classifier shaped like ResNet-18 (He et al. 2016, table 1), in plain torch.nn.

Ours: 96 × 96 inputs, half the published width, random weights. Timing needs no trained weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

CLASSES = 100


class Residual(nn.Module):
    """Layers with a shortcut around them."""

    def __init__(self, body: nn.Module, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.body = body
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's activation."""
        return torch.relu(self.body(x) + self.shortcut(x))


def stem(width: int) -> list[nn.Module]:
    """Return the layers before the blocks."""
    return [
        nn.Conv2d(3, width, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
    ]


def head(inside: int, classes: int) -> list[nn.Module]:
    """Return the layers after the blocks."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes)]


def block(inside: int, outside: int, stride: int) -> Residual:
    """Return two 3 × 3 convolutions with a shortcut."""
    body = nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
        nn.Conv2d(outside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
    )
    return Residual(body, inside, outside, stride)


def classifier(seed: int, width: int) -> nn.Module:
    """Return the network in eval mode; the same seed and width give the same weights."""
    torch.manual_seed(seed)
    layers, inside = stem(width), width
    for stage in range(4):
        outside = width * 2**stage
        layers += [block(inside, outside, 1 if stage == 0 else 2), block(outside, outside, 1)]
        inside = outside
    return nn.Sequential(*layers, *head(inside, CLASSES)).eval()
