"""Run a model of two stages on processes × threads × batch: the parallel plan of an engine."""

import argparse
import json
import multiprocessing

import torch

words = argparse.ArgumentParser()
words.add_argument("--plan", default="data", help="data: each process has both stages; pipeline: one each")
words.add_argument("--processes", type=int, default=1)
words.add_argument("--threads", type=int, default=2)
words.add_argument("--batch", type=int, default=4)
words.add_argument("--images", type=int, default=512)
given = words.parse_args()


def stage(seed: int) -> torch.nn.Module:
    """Return one half of the model."""
    torch.manual_seed(seed)
    layers = [torch.nn.Conv2d(16 if n or seed else 3, 16, 3, padding=1) for n in range(4)]
    return torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.ReLU())))


def serve(stages: list[int], inbox, outbox) -> None:
    """Apply stages to batches until None comes."""
    torch.set_num_threads(given.threads)
    model = torch.nn.Sequential(*map(stage, stages)).eval()
    with torch.no_grad():
        while (batch := inbox.get()) is not None:
            outbox.put(model(batch).numpy() if stages[-1] else model(batch))


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    first, middle, last = context.Queue(), context.Queue(8), context.Queue()
    if given.plan == "pipeline":
        parts = [([0], first, middle), ([1], middle, last)]
    else:
        parts = [([0, 1], first, last)] * given.processes
    workers = [context.Process(target=serve, args=part) for part in parts]
    for worker in workers:
        worker.start()
    images = torch.randn(given.images, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    batches = images.split(given.batch)
    for batch in batches:
        first.put(batch)
    total = sum(float(last.get().sum()) for _ in batches)
    for inbox in [part[1] for part in parts]:
        inbox.put(None)
    for worker in workers:
        worker.join()
    print(json.dumps({"images": given.images}))
