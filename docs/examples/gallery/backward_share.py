"""Train with a share of the backward pass: only the samples of the greatest loss, or the last layers."""

import argparse
import json

import torch

words = argparse.ArgumentParser()
words.add_argument("--share", type=float, default=1.0, help="of a batch that is learnt from")
words.add_argument("--layers", type=int, default=3, help="last layers that are trained in odd steps")
words.add_argument("--steps", type=int, default=80)
given = words.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)
images, truth = torch.randn(10240, 256), torch.randn(256, 10)
labels = (images @ truth).argmax(1)
model = torch.nn.Sequential(
    torch.nn.Linear(256, 512),
    torch.nn.ReLU(),
    torch.nn.Linear(512, 512),
    torch.nn.ReLU(),
    torch.nn.Linear(512, 10),
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
layers = [layer for layer in model if isinstance(layer, torch.nn.Linear)]
for step in range(given.steps):
    rows = torch.arange(256) + 256 * (step % 32)
    trained = layers[-given.layers :] if step % 2 else layers
    for layer in layers:
        layer.requires_grad_(layer in trained)
    if given.share < 1.0:
        with torch.no_grad():
            losses = torch.nn.functional.cross_entropy(model(images[rows]), labels[rows], reduction="none")
        rows = rows[losses.topk(int(given.share * len(rows))).indices]
    loss = torch.nn.functional.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    right = (model(images[8192:]).argmax(1) == labels[8192:]).float().mean().item()
print(json.dumps({"steps": given.steps, "accuracy": right}))
