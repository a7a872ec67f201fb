"""Train a small transformer: activation checkpointing, microbatch and precision under a memory limit."""

import argparse
import json
import time
from pathlib import Path

import torch
from torch.utils.checkpoint import checkpoint

words = argparse.ArgumentParser()
words.add_argument("--checkpointing", type=int, default=0)
words.add_argument("--microbatch", type=int, default=16)
words.add_argument("--precision", default="float32", help="float32 or bfloat16")
words.add_argument("--texts", type=int, default=32)
given = words.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)
WIDTH, LAYERS, LENGTH, VOCABULARY = 128, 4, 128, 256


def memory_kb(name: str) -> int:
    """Return this process's memory now (VmRSS) or at its peak (VmHWM)."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"{name}:")[2].split()[0])


class Small(torch.nn.Module):
    """Four layers, each one checkpointed or not."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
            for _ in range(LAYERS)
        )
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next token."""
        hidden = self.embed(tokens)
        for layer in self.layers:
            if given.checkpointing:
                hidden = checkpoint(layer, hidden, use_reentrant=False)
            else:
                hidden = layer(hidden)
        return self.head(hidden)


model = Small()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
start = torch.randint(0, VOCABULARY, (given.texts, 1))
texts = (start + torch.arange(LENGTH + 1) * 3) % VOCABULARY  # each token is the last one plus three
Path("/proc/self/clear_refs").write_text("5")  # the peak begins at what is in use now
before_kb, began = memory_kb("VmRSS"), time.process_time()
for first in range(0, given.texts, 16):
    optimizer.zero_grad()
    for part in texts[first : first + 16].split(given.microbatch):
        with torch.autocast("cpu", torch.bfloat16, enabled=given.precision == "bfloat16"):
            scores = model(part[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            scores.float().flatten(0, 1), part[:, 1:].flatten()
        )
        (loss * len(part) / 16).backward()
    optimizer.step()
cpu_ms = 1000 * (time.process_time() - began) / given.texts
memory_mb = (memory_kb("VmHWM") - before_kb) / 1024
print(json.dumps({"cpu_ms": cpu_ms, "loss": loss.item(), "memory_mb": memory_mb}))
