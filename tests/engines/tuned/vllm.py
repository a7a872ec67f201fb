"""Tunes a real vLLM's flags: `python -m tests.engines.tuned.vllm --output FILE.json [PART …]`.

`study` is `jouletune run --llm -- vllm serve …`, `single` the same with one caller and longer answers,
which repeat themselves. `sweep` is vLLM's own `vllm bench sweep serve` over the flags and prompts of
`study`, of which a user takes the fastest setting within the limits. `turns` measures these two beside the
defaults, in alternating windows. Parts that are not named stay in the file.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from agents.host.machine import HostClock
from agents.workloads import open_workload
from agents.workloads.engine.openai import NGRAM, SPECULATIVE_TOKENS
from agents.workloads.http.llm.requests import RequestedLoad
from tests.bench.result import header
from tests.engines.tuned.joint import METRIC, Bench, in_turns
from tests.integration.stage import JOULETUNE
from tests.llama.running import running
from tests.processes import reserved_port, run_to_end
from tests.vllm.build import environment, install
from tests.vllm.serving import ENVIRON, START_S, serving
from tuner.cli.run.llm import LlmRequest, write_files
from tuner.core import Setting, Value

FLAGS: Mapping[str, tuple[int, ...]] = {
    "max_num_seqs": (128, 2),
    "max_num_batched_tokens": (2048, 256),
    SPECULATIVE_TOKENS: (0, 3),
}
"""The first value is vLLM's default on CPUs."""
KNOBS = [w for k, v in FLAGS.items() for w in ("--knob", f"{k}={','.join(map(str, v))}")]
DEFAULTS: dict[str, Value] = {name: values[0] for name, values in FLAGS.items()}
CALLERS = 4
LOAD = f"callers={CALLERS},prompt=32,output=24"
LIMITS = {"ttft_p95_ms": 1.5, "tpot_p95_ms": 1.2}
"""The most of each metric, relative to the defaults."""
SHOWN = ("ttft_p95_ms", METRIC, "tpot_p95_ms", "throughput_per_s")
STUDIES = {
    "study": (LOAD, 5, "p95", 8.0),
    "single": ("callers=1,prompt=32,output=48", 3, "p50", 12.0),
}
"""The load, the trials and the limited quantile of each study: one caller has too few requests for p95."""
ROUNDS, PROMPTS = 4, 48
DEADLINE_S = 2700.0
PARTS = (*STUDIES, "sweep", "turns")
NUMBER = "_benchmark_name"
"""The sweep's name of a setting: its number among ours."""


def study(
    load: str, trials: int, limited: str, window_s: float, folder: Path, share: float
) -> dict[str, Any]:
    """Return the outcome of a run over the flags, with its minutes and the requests that it lost."""
    words = ["run", "--device", "cpu", "--generate-load", load, "--objective", METRIC, *KNOBS]
    words += ["--trials", str(trials), "--window", str(window_s), "--foreign-share", str(share)]
    for metric, most in LIMITS.items():
        words += ["--constraint", f"{metric.replace('p95', limited)} <= {most}x baseline"]
    words += ["--state-dir", str(folder), "--json", "--llm", "--", *serving()]
    began = time.monotonic()
    done = run_to_end([*JOULETUNE, *words], stdin=subprocess.DEVNULL, timeout=DEADLINE_S)
    minutes = (time.monotonic() - began) / 60.0
    ended = (folder / "proxy.log").read_text()
    if done.returncode:
        raise RuntimeError(f"{done.stderr[-2000:]} {ended[-500:]}")
    seen, _ = json.JSONDecoder().raw_decode(done.stdout)
    (lost,) = re.findall(r" (\d+) lost, ", ended)
    saved = seen["saving"] or {"mean": 0.0, "stderr": None}
    return {
        "load": load,
        "limited": limited,
        "setting": {**DEFAULTS, **(seen["study"]["confirmed"] or {})},
        "phase": seen["study"]["phase"],
        "why": seen["why"],
        "trials": len(seen["trials"]),
        "beyond": sum(trial["verdict"] == "infeasible" for trial in seen["trials"]),
        "foreign": max(trial["foreign"] or 0.0 for trial in seen["trials"]),
        "saving_percent": 100.0 * saved["mean"],
        "saving_stderr_percent": saved["stderr"] and 100.0 * saved["stderr"],
        "lost": int(lost),
        "minutes": minutes,
    }


def sweep(folder: Path) -> dict[str, Any]:
    """Return the outcome of vLLM's own sweep over every setting, with the same prompts and callers."""
    python, vllm = environment() / "bin/python", str(environment() / "bin/vllm")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "pandas"], check=True)  # it needs it
    bodies = map(json.loads, RequestedLoad.parse(LOAD).bodies("", {}, 0).splitlines())
    asked = [{"prompt": body["prompt"], "output_tokens": body["max_tokens"]} for body in bodies]
    prompts, served = folder / "prompts.jsonl", folder / "settings.json"
    prompts.write_text("\n".join(map(json.dumps, asked)))
    settings = [dict(zip(FLAGS, row, strict=True)) for row in itertools.product(*FLAGS.values())]
    served.write_text(json.dumps([_served(n, one) for n, one in enumerate(settings)]))
    address = ["--host", "127.0.0.1", "--port", str(reserved_port())]
    bench = [vllm, "bench", "serve", "--model", str(environment() / "model"), *address]
    bench += ["--dataset-name", "custom", "--dataset-path", str(prompts), "--skip-chat-template"]
    bench += ["--custom-output-len", "-1", "--num-prompts", str(PROMPTS), "--num-warmups", "8"]
    bench += ["--max-concurrency", str(CALLERS), "--ignore-eos", "--temperature", "0"]
    bench += ["--metric-percentiles", "95"]
    command = [vllm, "bench", "sweep", "serve", "--serve-params", str(served)]
    command += ["--serve-cmd", shlex.join([vllm, *serving()[3:], *address])]
    command += ["--bench-cmd", shlex.join(bench), "--num-runs", "1", "-o", str(folder / "sweep")]
    began = time.monotonic()
    done = run_to_end(command, timeout=DEADLINE_S)
    minutes = (time.monotonic() - began) / 60.0
    if done.returncode:
        raise RuntimeError(done.stdout[-1000:] + done.stderr[-2000:])
    rows = [
        r for file in folder.glob("sweep/**/summary.json") for r in json.loads(file.read_text())
    ]
    base = next(row for row in rows if settings[int(row[NUMBER])] == DEFAULTS)
    kept = [
        r for r in rows if all(r[_own(m)] <= most * base[_own(m)] for m, most in LIMITS.items())
    ]
    best = max(kept, key=lambda row: row["output_throughput"])
    return {
        "setting": settings[int(best[NUMBER])],
        "trials": len(rows),
        "beyond": len(rows) - len(kept),
        "minutes": minutes,
    }


def _served(number: int, setting: Mapping[str, int]) -> dict[str, object]:
    """Return a setting as the sweep's parameters."""
    flags = {name: value for name, value in setting.items() if name != SPECULATIVE_TOKENS}
    length = setting[SPECULATIVE_TOKENS]
    drafts = {"speculative_config": {**NGRAM, "num_speculative_tokens": length}} if length else {}
    return {NUMBER: str(number), **flags, **drafts}


def _own(metric: str) -> str:
    """Return the sweep's name of a metric."""
    name, share, unit = metric.split("_")
    return f"{share}_{name}_{unit}"


def turns(folder: Path, found: Mapping[str, Any]) -> dict[str, Any]:
    """Measure the found settings and the defaults in turns, each by a start of its own."""
    arms: dict[str, Setting] = {"defaults": DEFAULTS}
    arms |= {part: found[part]["setting"] for part in ("study", "sweep") if part in found}
    words = ["--state-dir", str(folder), *KNOBS, "--", *serving()]
    with running(words, folder, START_S) as proxy:
        written = write_files(LlmRequest(proxy.url, "cpu", LOAD), folder / "llm")
        side = open_workload(written.workload, seed=0, state_dir=folder, clock=HostClock())
        with closing(side):
            seen = in_turns(Bench(proxy, side, SHOWN), arms, ROUNDS)
    for arm, one in seen.items():
        search = found.get(arm, {})
        one |= {"tried": search.get("trials"), "beyond": search.get("beyond")}
        one |= {"minutes": search.get("minutes"), "rounds": ROUNDS}
        limits = {metric: most * seen["defaults"][metric] for metric, most in LIMITS.items()}
        above = [any(w[m] > limit for m, limit in limits.items()) for w in one.pop("windows")]
        one["above"] = sum(above)
    return seen


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[])
    words.add_argument("--output", type=Path, required=True)
    words.add_argument("--foreign-share", type=float, default=0.3)
    given = words.parse_args()
    install()
    os.environ.update(ENVIRON)
    found = json.loads(given.output.read_text()) if given.output.exists() else {}
    for part in given.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="jouletune-vllm-") as name:
            folder = Path(name)
            if part in STUDIES:
                found[part] = study(*STUDIES[part], folder, given.foreign_share)
            else:
                found[part] = sweep(folder) if part == "sweep" else turns(folder, found)
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps({**found, **header()}, indent=2) + "\n")
        print(part, json.dumps(found[part]), flush=True)


if __name__ == "__main__":
    main()
