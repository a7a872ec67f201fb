"""Run a model of two stages by a parallel plan: processes, threads and batch, by the load's phase."""

import argparse
import json
import multiprocessing
import os
import time
from multiprocessing.queues import Queue

import torch

words = argparse.ArgumentParser()
words.add_argument("--plan", default="one", help="one or two processes, or pipeline: a stage each")
words.add_argument("--threads", type=int, default=1)
words.add_argument("--batch", type=int, default=16)
words.add_argument("--inside", type=int, default=8, help="batches under way: the load's phase")
words.add_argument("--images", type=int, default=512)
given = words.parse_args()


def stage(seed: int) -> torch.nn.Module:
    """Return one half of the model."""
    torch.manual_seed(seed)
    layers = [torch.nn.Conv2d(16 if n or seed else 3, 16, 3, padding=1) for n in range(4)]
    return torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.ReLU())))


def serve(stages: list[int], inbox: Queue, outbox: Queue) -> None:
    """Apply stages to batches until None comes."""
    torch.set_num_threads(given.threads)
    model = torch.nn.Sequential(*map(stage, stages)).eval()
    with torch.no_grad():
        while (batch := inbox.get()) is not None:
            outbox.put(model(torch.from_numpy(batch)).numpy())


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    first, middle, last = context.Queue(), context.Queue(8), context.Queue()
    if given.plan == "pipeline":
        parts = [([0], first, middle), ([1], middle, last)]
    else:
        parts = [([0, 1], first, last)] * (2 if given.plan == "two" else 1)
    workers = [context.Process(target=serve, args=part) for part in parts]
    for worker in workers:
        worker.start()
    images = torch.randn(given.images, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    batches = [batch.numpy() for batch in images.split(given.batch)]
    began, waiting = time.monotonic(), 0
    for batch in batches:
        first.put(batch)
        waiting += 1
        if waiting == given.inside:
            last.get()
            waiting -= 1
    for _ in range(waiting):
        last.get()
    image_ms = 1000 * (time.monotonic() - began) / given.images
    for inbox in [part[1] for part in parts]:
        inbox.put(None)
    for worker in workers:
        worker.join()
    times = os.times()
    cpu_ms = 1000 * (times.children_user + times.children_system) / given.images
    print(json.dumps({"image_ms": image_ms, "cpu_ms": cpu_ms}))
