"""An image classifier shaped like ResNet-50 (He et al. 2016, table 1), in plain torch.nn.

The stride sits in the 3 × 3 convolution, as in most ports. Random weights: timing needs no trained ones.
"""

from __future__ import annotations

import torch
from torch import nn

from agents.workloads.reference.resnet18 import Residual, head, stem

CLASSES = 1000
STAGES = (3, 4, 6, 3)
EXPANSION = 4


def bottleneck(inside: int, middle: int, stride: int) -> Residual:
    """Return 1 × 1, 3 × 3 and 1 × 1 convolutions with a shortcut."""
    outside = EXPANSION * middle
    body = nn.Sequential(
        nn.Conv2d(inside, middle, 1, bias=False),
        nn.BatchNorm2d(middle),
        nn.ReLU(inplace=True),
        nn.Conv2d(middle, middle, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(middle),
        nn.ReLU(inplace=True),
        nn.Conv2d(middle, outside, 1, bias=False),
        nn.BatchNorm2d(outside),
    )
    return Residual(body, inside, outside, stride)


def resnet50(seed: int, width: int) -> nn.Module:
    """Return the network in eval mode; the same seed and width give the same weights."""
    torch.manual_seed(seed)
    layers, inside = stem(width), width
    for stage, blocks in enumerate(STAGES):
        middle = width * 2**stage
        for place in range(blocks):
            layers.append(bottleneck(inside, middle, 2 if stage and not place else 1))
            inside = EXPANSION * middle
    return nn.Sequential(*layers, *head(inside, CLASSES)).eval()
