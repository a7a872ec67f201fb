"""Classify with a trained network: bits and precision of its weights under a limit on accuracy."""

import argparse
import json
import time

import torch

words = argparse.ArgumentParser()
words.add_argument(
    "--weights", default="float32", help="float32, bfloat16, int8, or bits: 6, 4, 3, 2"
)
words.add_argument("--batch", type=int, default=64)
words.add_argument("--images", type=int, default=8192)
given = words.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)
images, truth = torch.randn(8192, 512), torch.randn(512, 10)
labels = (images @ truth).argmax(1)
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for start in range(0, 4096 * 2, 256):
    rows = torch.arange(start, start + 256) % 4096
    loss = torch.nn.functional.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def rounded(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """Return weights rounded to so many bits, each row with its own scale."""
    scale = weight.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 0.5)
    return (weight / scale).round().clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) * scale


size, kind = 32, torch.float32
if given.weights == "bfloat16":
    size, kind = 16, torch.bfloat16
    model = model.to(kind)
elif given.weights == "int8":
    size = 8
    model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, torch.qint8)
elif given.weights != "float32":
    size = int(given.weights)
    for layer in (model[0], model[2]):
        layer.weight.data = rounded(layer.weight.data, size)
right, began = 0, time.process_time()
with torch.no_grad():
    for start in range(0, given.images, given.batch):
        rows = 4096 + torch.arange(start, start + given.batch) % 4096
        scores = model(images[rows].to(kind))
        right += int((scores.argmax(1) == labels[rows]).sum())
cpu_ms = 1000 * (time.process_time() - began) / given.images
memory_mb = (512 * 512 + 512 * 10) * size / 8 / 2**20
print(json.dumps({"cpu_ms": cpu_ms, "accuracy": right / given.images, "memory_mb": memory_mb}))
