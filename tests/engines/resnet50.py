"""An image classifier shaped like ResNet-50 (He et al. 2016, table 1), in plain torch.nn.

The stride sits in the 3 × 3 convolution, as in most ports. Random weights: timing needs no trained ones.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

CLASSES = 1000
STAGES = (3, 4, 6, 3)
EXPANSION = 4


class Bottleneck(nn.Module):
    """1 × 1, 3 × 3 and 1 × 1 convolutions with a shortcut."""

    def __init__(self, inside: int, middle: int, stride: int) -> None:
        super().__init__()
        outside = EXPANSION * middle
        self.body = nn.Sequential(
            nn.Conv2d(inside, middle, 1, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(inplace=True),
            nn.Conv2d(middle, middle, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(inplace=True),
            nn.Conv2d(middle, outside, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's activation."""
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet50(seed: int, width: int) -> nn.Module:
    """Return the network in eval mode; the same seed and width give the same weights."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
    ]
    inside = width
    for stage, blocks in enumerate(STAGES):
        middle = width * 2**stage
        for block in range(blocks):
            layers.append(Bottleneck(inside, middle, 2 if stage and not block else 1))
            inside = EXPANSION * middle
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, CLASSES)]
    return nn.Sequential(*layers).eval()
