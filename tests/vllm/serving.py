"""The command of the real vLLM with its small model, and programs of ours beside it."""

from __future__ import annotations

import subprocess
import sys

from tests.processes import run_to_end
from tests.vllm.build import environment

ENVIRON = {
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
}  # fmt: skip
START_S, LONGEST_RUN_S = 300.0, 1500


def serving() -> list[str]:
    """Return the command of vLLM with the model."""
    python, model = environment() / "bin/python", environment() / "model"
    options = ["--max-model-len", "1024", "--enforce-eager", "--dtype", "float32"]
    return [str(python), "-m", "vllm.entrypoints.cli.main", "serve", str(model), *options]


def jouletune(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ours to its end."""
    program = "import sys; from tuner.cli.app import main; sys.exit(main())"
    command = [sys.executable, "-c", program, *arguments]
    return run_to_end(command, timeout=LONGEST_RUN_S)
