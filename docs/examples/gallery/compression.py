"""Train on two processes over gloo; a step is its CPU time and the link's time for its bytes."""

import argparse
import json
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn import CrossEntropyLoss, Linear, ReLU, Sequential

words = argparse.ArgumentParser()
words.add_argument("--compress", default="none", help="none, topk, or the rank of PowerSGD")
words.add_argument("--mbit", type=float, default=200.0, help="of the link, in Mbit/s")
words.add_argument("--steps", type=int, default=40)
given = words.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)
WIDTH, SHARE = 512, 0.02
images, truth = torch.randn(4096, WIDTH), torch.randn(WIDTH, 10)
labels = (images @ truth).argmax(1)


def reduced(tensor: torch.Tensor) -> torch.Tensor:
    """Return the mean of both processes' tensors; of one alone, its own."""
    if dist.is_initialized():
        dist.all_reduce(tensor.div_(2))
    return tensor


def mean_of(gradient: torch.Tensor, kept: dict, name: str) -> tuple[torch.Tensor, float]:
    """Return the mean gradient, and the bytes of its message; what is lost is added to the next."""
    if given.compress == "none" or gradient.dim() < 2:
        return reduced(gradient), 4.0 * gradient.numel()
    whole = gradient + kept.get(name, 0.0)
    if given.compress == "topk":
        limit = whole.abs().flatten().kthvalue(int((1 - SHARE) * whole.numel())).values
        sent, size = torch.where(whole.abs() > limit, whole, 0.0), 8.0 * SHARE * whole.numel()
        mean, kept[name] = reduced(sent.clone()), whole - sent
        return mean, size
    right = kept.get((name, "right"), torch.randn(whole.shape[1], int(given.compress)))
    left = torch.linalg.qr(reduced(whole @ right)).Q
    right = kept[name, "right"] = reduced(whole.T @ left)
    kept[name] = whole - left @ right.T
    return left @ right.T, 4.0 * (left.numel() + right.numel())


def trained(rank: int, steps: int) -> tuple[float, float]:
    """Return the median of a step's milliseconds, link included, and the accuracy at the end."""
    torch.manual_seed(1)
    model = Sequential(Linear(WIDTH, WIDTH), ReLU(), Linear(WIDTH, 10))
    optimizer, kept, times = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), {}, []
    for step in range(steps):
        began, bits = time.process_time(), 0.0
        rows = torch.arange(128) + 128 * ((2 * step + rank) % 24)
        optimizer.zero_grad()
        CrossEntropyLoss()(model(images[rows]), labels[rows]).backward()
        for name, weight in model.named_parameters():
            weight.grad, size = mean_of(weight.grad, kept, name)
            bits += 8 * size
        optimizer.step()
        times.append(1000 * (time.process_time() - began) + bits / given.mbit / 1000)
    right = (model(images[3072:]).argmax(1) == labels[3072:]).float()
    return statistics.median(times), right.mean().item()


def replica(rank: int, folder: str) -> None:
    """Train alone, for the prediction, then one of the two replicas."""
    predicted_ms, _ = trained(rank, 12)
    dist.init_process_group("gloo", init_method=f"file://{folder}/link", rank=rank, world_size=2)
    step_ms, right = trained(rank, given.steps)
    dist.destroy_process_group()
    if rank == 0:
        print(json.dumps({"step_ms": step_ms, "predicted_ms": predicted_ms, "accuracy": right}))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        torch.multiprocessing.start_processes(replica, (place,), nprocs=2, start_method="fork")
