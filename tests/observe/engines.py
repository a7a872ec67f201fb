"""A real llama-server and a real vLLM to observe, with the totals that they and the kernel count."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from agents.workloads.http.llm.engines import LLAMA_CPP, VLLM
from tests.observe.sampled import Totals, cpu_s
from tests.processes import reserved_port, until
from tests.vllm.build import missing
from tests.vllm.serving import ENVIRON, serving

START_S = 600.0
LLAMA_TOTAL = re.compile(r"total time =\s+([\d.]+) ms")
"""A finished request in llama-server's log: the time from its slot to its last token."""


@dataclass(frozen=True)
class Engine:
    """A running engine: its address, and its totals `cpu_s`, `tokens`, `requests` and their `ms`."""

    url: str
    totals: Callable[[], Totals]


@contextmanager
def started(command: list[str], url: str, log: Path) -> Iterator[int]:
    """Run an engine within the block, once it is ready; its process's number is given."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=os.environ | ENVIRON, stdout=out, stderr=out, start_new_session=True
        )

    def ready() -> bool:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            return httpx2.get(f"{url}/health", timeout=5.0).status_code == 200
        except httpx2.HTTPError:
            return False

    try:
        until(ready, "the engine", START_S)
        yield process.pid
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def summed(url: str, *names: str) -> Iterator[float]:
    """Yield the sum of each metric of an engine over its labels."""
    rows = httpx2.get(f"{url}/metrics", timeout=60.0).text.splitlines()
    for name in names:
        own = [row for row in rows if row.startswith((f"{name}{{", f"{name} "))]
        yield sum(float(row.split()[-1]) for row in own)


@contextmanager
def real_llama_server(folder: Path) -> Iterator[Engine]:
    pytest.importorskip("gguf", reason="gguf is not installed: make test-llama installs it")
    from tests.engines.gguf_model import write_gguf
    from tests.llama.build import SOURCES, Unbuildable, llama_server
    from tests.llama.models import TARGET, weights

    try:
        program = llama_server(max(SOURCES))
    except Unbuildable as error:
        pytest.skip(f"llama-server cannot be built here: {error}")
    model, port, log = folder / "target.gguf", reserved_port(), folder / "log"
    write_gguf(model, "target", TARGET, weights(TARGET))
    url = f"http://127.0.0.1:{port}"
    options = ["-np", "4", "-c", "4096", "-t", "1", "--metrics", "--port", str(port)]
    with started([str(program), "-m", str(model), *options], url, log) as pid:

        def totals() -> Totals:
            (tokens,) = summed(url, LLAMA_CPP.tokens)
            took = [float(ms) for ms in LLAMA_TOTAL.findall(log.read_text(errors="replace"))]
            return {"cpu_s": cpu_s(pid), "tokens": tokens, "requests": len(took), "ms": sum(took)}

        yield Engine(url, totals)


@contextmanager
def real_vllm(folder: Path) -> Iterator[Engine]:
    if why := missing():
        pytest.skip(why)
    port = reserved_port()
    url, took = f"http://127.0.0.1:{port}", VLLM.histograms["latency"][0]
    command = [*serving(), "--host", "127.0.0.1", "--port", str(port), "--max-num-seqs", "8"]
    with started(command, url, folder / "log") as pid:

        def totals() -> Totals:
            tokens, count, total = summed(url, VLLM.tokens, f"{took}_count", f"{took}_sum")
            return {"cpu_s": cpu_s(pid), "tokens": tokens, "requests": count, "ms": 1e3 * total}

        yield Engine(url, totals)
