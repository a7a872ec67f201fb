"""Energy beside a GuideLLM run: `jouletune observe --json` measures the server under its load.

    python3 beside_guidellm.py http://127.0.0.1:8000 --device nvidia:0 -- --profile …

Options before `--` are those of `observe`, options after it those of `guidellm run`. It prints one line of
JSON for each benchmark of the run, from the windows that lie within its measured time.
"""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any


def main(url: str, *options: str) -> None:
    """Run GuideLLM and `observe` side by side, and print the energy of each benchmark."""
    split = options.index("--")
    with tempfile.TemporaryDirectory() as folder:
        energy, result = Path(folder, "energy.json"), Path(folder, "guidellm.json")
        observe = ["jouletune", "observe", "--llm", url, "--for", "10h", "--window", "5", "--json"]
        load = ["guidellm", "run", "--backend", f"kind=openai_http,target={url}"]
        load += ["--output", f"kind=json,path={result}", *options[split + 1 :]]
        with energy.open("w") as out:
            observing = subprocess.Popen([*observe, *options[:split]], stdout=out)
        try:
            subprocess.run(load, check=True, stdout=sys.stderr)
        finally:
            observing.send_signal(signal.SIGINT)  # ends it early: it prints the windows so far
        if observing.wait():
            sys.exit("observe measured nothing; its reason is above")
        windows = json.loads(energy.read_text())["windows"]
        for benchmark in json.loads(result.read_text())["benchmarks"]:
            print(json.dumps(beside(benchmark, windows)))


def beside(benchmark: dict[str, Any], windows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of the windows within a benchmark; joules are None without a meter."""
    times = benchmark["scheduler_metrics"]
    began, ended = times["measure_start_time"], times["measure_end_time"]
    starts = [datetime.fromisoformat(w["started_at"]).timestamp() for w in windows]
    own = [
        w
        for start, w in zip(starts, windows, strict=True)
        if began <= start and start + w["seconds"] <= ended
    ]
    joules = [w["joules"] for w in own if w["joules"] is not None]
    timed = [w for w in own if "cpu_time_ms" in w["metrics"]]  # those with enough tokens
    used_ms = sum(w["completed"] * w["metrics"]["cpu_time_ms"]["value"] for w in timed)
    return {
        "windows": len(own),
        "seconds": sum(w["seconds"] for w in own),
        "output_tokens": sum(w["completed"] for w in own),
        "joules": sum(joules) if own and len(joules) == len(own) else None,
        "cpu_ms_per_token": used_ms / sum(w["completed"] for w in timed) if timed else None,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
