"""The example of energy beside a load tool, with a real GuideLLM against a real vLLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.observe.engines import real_vllm
from tests.observe.sampled import sampled
from tests.vllm.build import environment, guidellm

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

EXAMPLE = Path(__file__).parents[2] / "docs/examples/beside_guidellm.py"


def test_a_run_of_guidellm_has_the_energy_of_its_own_time(tmp_path: Path) -> None:
    if not guidellm().exists():
        pytest.skip(f"no {guidellm()}: python -m tests.vllm.build")
    folders = [str(Path(sys.executable).parent), str(guidellm().parent), os.environ["PATH"]]
    tokenizer = f"kind=hf_auto,model={environment() / 'model'}"
    options = ["--profile", "kind=concurrent,streams=2", "--tokenizer", tokenizer]
    options += ["--constraint", "kind=max_duration,seconds=45", "--disable-console-interactive"]
    options += ["--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=8"]
    with real_vllm(tmp_path) as engine, sampled(engine.totals) as own:
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), engine.url, "--device", "cpu", "--", *options],
            cwd=tmp_path, env={**os.environ, "PATH": ":".join(folders), "HF_HUB_OFFLINE": "1"},
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (seen,) = map(json.loads, done.stdout.splitlines())
    assert seen["windows"] >= 2 and 5.0 <= seen["seconds"] <= 46.0
    assert seen["joules"] is None or seen["joules"] > 0.0
    first, last = own.read[0][1], own.read[-1][1]
    assert 0 < seen["output_tokens"] < last["tokens"] - first["tokens"]
    used_ms = 1e3 * (last["cpu_s"] - first["cpu_s"]) / (last["tokens"] - first["tokens"])
    assert 0.5 * used_ms < seen["cpu_ms_per_token"] <= 1.1 * used_ms
