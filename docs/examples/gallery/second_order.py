"""Train with a second-order method (K-FAC): how often its inverses are computed, with which memory."""

import argparse
import json

import torch

words = argparse.ArgumentParser()
words.add_argument("--interval", type=int, default=1, help="steps between two inversions")
words.add_argument("--factors", type=int, default=256, help="largest side of a factor; less is diagonal")
words.add_argument("--steps", type=int, default=60)
given = words.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)
images, truth = torch.randn(6144, 256) * torch.logspace(0, -1, 256), torch.randn(256, 10)
labels = (images @ truth).argmax(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 10))
layers = [layer for layer in model if isinstance(layer, torch.nn.Linear)]
seen: dict[torch.nn.Linear, list[torch.Tensor]] = {layer: [] for layer in layers}
for one in layers:
    one.register_forward_pre_hook(lambda layer, inputs: seen[layer].insert(0, inputs[0].detach()))
    one.register_full_backward_hook(lambda layer, _, outputs: seen[layer].append(outputs[0].detach()))
factors: dict[tuple[torch.nn.Linear, int], torch.Tensor] = {}
inverses: dict[tuple[torch.nn.Linear, int], torch.Tensor] = {}


def factor(rows: torch.Tensor) -> torch.Tensor:
    """Return the second moment of rows, its diagonal alone where the matrix would be too large."""
    whole = rows.shape[1] <= given.factors
    return rows.T @ rows / len(rows) if whole else (rows * rows).mean(0)


def scaled(key: tuple[torch.nn.Linear, int], matrix: torch.Tensor) -> torch.Tensor:
    """Return a gradient times the inverse of a factor."""
    inverse = inverses[key]
    return matrix @ inverse if inverse.dim() == 2 else matrix * inverse


for step in range(given.steps):
    rows = torch.arange(256) + 256 * (step % 20)
    loss = torch.nn.functional.cross_entropy(model(images[rows]), labels[rows])
    model.zero_grad()
    loss.backward()
    for one in layers:
        for side, rows_seen in enumerate((seen[one][0], seen[one][1] * len(rows))):
            new, old = factor(rows_seen), factors.get((one, side))
            factors[one, side] = new if old is None else 0.9 * old + 0.1 * new
            if step % given.interval == 0:
                now = factors[one, side]
                damped = now + 0.03 * torch.eye(len(now)) if now.dim() == 2 else now + 0.03
                inverses[one, side] = torch.linalg.inv(damped) if now.dim() == 2 else 1.0 / damped
        seen[one].clear()
        with torch.no_grad():
            move = scaled((one, 0), one.weight.grad)
            move = scaled((one, 1), move.T).T
            one.weight -= 0.05 * move / max(1.0, float(move.norm()) / 3.0)
            one.bias -= 0.3 * one.bias.grad
with torch.no_grad():
    right = (model(images[5120:]).argmax(1) == labels[5120:]).float().mean().item()
print(json.dumps({"steps": given.steps, "accuracy": right}))
