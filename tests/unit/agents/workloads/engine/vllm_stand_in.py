"""A stand-in for `vllm serve MODEL`, started as a process: its flags, its metrics, and its memory.

As vLLM 0.32: one line of `--help` names `--help=all`; a first process with a worker that outlives it if
it is killed; no second one starts while the memory is reserved. MODEL is a folder, which gets the words of
each start.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

TOO_MANY = 13
"""The value of --max-num-seqs with which it does not start."""
HELP = """
  --host HOST           Host name. (default: None)
  --max-num-seqs MAX_NUM_SEQS
  --tensor-parallel-size N, -tp N
  --max_batch_size INTEGER
  --kv_cache_free_gpu_memory_fraction FLOAT
  --enable-prefix-caching, --no-enable-prefix-caching
  --kv-cache-dtype {auto,fp8}
  --gpu-memory-utilization GPU_MEMORY_UTILIZATION
  --speculative-config SPECULATIVE_CONFIG, -sc SPECULATIVE_CONFIG
"""


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("serve")
    parser.add_argument("model", type=Path)
    parser.add_argument("--help", nargs="?", const="groups")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--max-num-seqs", "--max_num_seqs", type=int, default=256)
    parser.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction)
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--speculative-config", type=json.loads)
    parser.add_argument("--load-s", type=float, default=0.3)
    given, unknown = parser.parse_known_args()
    if given.help:
        print(
            HELP
            if given.help == "all"
            else "  Use `--help=all` to show all available flags at once."
        )
        return
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if given.max_num_seqs == TOO_MANY:
        sys.exit("ValueError: max_num_seqs")
    memory = (given.model / "memory").open("w")
    try:
        fcntl.flock(memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit("ValueError: Free memory on device is less than desired GPU memory utilization")
    with (given.model / "starts").open("a") as starts:
        starts.write(json.dumps(sys.argv[3:]) + "\n")
    from tests.unit.agents.workloads.http.llm.servers import SHOWN, ModelServer

    sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(sleeping, pass_fds=[memory.fileno()]) as worker:

        def end(_number: int, _frame: object) -> None:
            worker.kill()
            sys.exit(0)

        signal.signal(signal.SIGTERM, end)
        time.sleep(given.load_s)
        healthy = {**SHOWN["vllm"].answers, "/health": {}}
        ModelServer(replace(SHOWN["vllm"], answers=healthy), port=given.port)
        worker.wait()


if __name__ == "__main__":
    main()
