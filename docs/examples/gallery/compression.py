"""Train on two processes over gloo, with compressed gradients; the link is as slow as --mbit says."""

import argparse
import json
import time

import torch
import torch.distributed as dist
from torch.multiprocessing import spawn

words = argparse.ArgumentParser()
words.add_argument("--compress", default="none", help="none, topk or the rank of PowerSGD")
words.add_argument("--mbit", type=float, default=200.0, help="of the link, in Mbit/s")
words.add_argument("--steps", type=int, default=40)
given = words.parse_args()


def send(tensor: torch.Tensor) -> torch.Tensor:
    """Sum a tensor over both processes, at the link's speed."""
    began = time.monotonic()
    dist.all_reduce(tensor)
    left = tensor.numel() * tensor.element_size() * 8 / given.mbit / 1e6 - time.monotonic() + began
    time.sleep(max(0.0, left))
    return tensor / 2


def exchanged(gradient: torch.Tensor, kept: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """Return the mean gradient; what compression loses is added to the next one (error feedback)."""
    if given.compress == "none" or gradient.dim() < 2:
        return send(gradient.clone())
    whole = gradient + kept.get(name, torch.zeros_like(gradient))
    if given.compress == "topk":
        limit = whole.abs().flatten().kthvalue(int(0.98 * whole.numel())).values
        mean = torch.where(whole.abs() > limit, whole, 0.0)
        kept[name] = whole - mean
        # Positions and values: four bytes each, instead of the dense tensor.
        time.sleep(0.02 * whole.numel() * 64 / given.mbit / 1e6)
        dist.all_reduce(mean)
        return mean / 2
    rank = int(given.compress)
    right = kept.setdefault(f"{name}.q", torch.randn(whole.shape[1], rank, generator=torch.manual_seed(1)))
    left, _ = torch.linalg.qr(send(whole @ right))
    kept[f"{name}.q"] = send(whole.T @ left)
    kept[name] = whole - left @ kept[f"{name}.q"].T
    return left @ kept[f"{name}.q"].T


def work(rank: int, store: str) -> None:
    """Train one of the two replicas."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, truth = torch.randn(4096, 512), torch.randn(512, 10)
    labels = (images @ truth).argmax(1)
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer, kept = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9), {}
    for step in range(given.steps):
        rows = torch.arange(128) + 128 * ((2 * step + rank) % 24)
        loss = torch.nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        for name, weight in model.named_parameters():
            weight.grad = exchanged(weight.grad, kept, name)
        optimizer.step()
    right = (model(images[3072:]).argmax(1) == labels[3072:]).float().mean().item()
    if rank == 0:
        print(json.dumps({"steps": given.steps, "accuracy": right}))
    dist.destroy_process_group()


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        spawn(work, (f"{folder}/store",), nprocs=2)
