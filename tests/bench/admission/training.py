"""The bench's fine-tuning: a small network trained step by step, which prints its totals as JSON lines."""

from __future__ import annotations

import json

import torch

SIZE, BATCH = 512, 64

if __name__ == "__main__":
    model = torch.nn.Sequential(
        torch.nn.Linear(SIZE, SIZE), torch.nn.ReLU(), torch.nn.Linear(SIZE, SIZE)
    )
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    made = torch.Generator().manual_seed(0)
    # Forward and backward are three products of each layer; weights and their gradients are moved thrice.
    weights = sum(p.numel() for p in model.parameters())
    gflop, gbyte = 6e-9 * BATCH * weights, 3 * 4e-9 * weights
    steps = 0
    while True:
        data = torch.randn(BATCH, SIZE, generator=made)
        optimiser.zero_grad()
        torch.autograd.backward(torch.nn.functional.mse_loss(model(data), data))
        optimiser.step()
        steps += 1
        told = {"steps": steps, "gflop": steps * gflop, "gbyte": steps * gbyte}
        print(json.dumps(told), flush=True)
