"""Tunes a real llama-server jointly: `python -m tests.engines.tuned.joint --output FILE.json`.

`jouletune workload proxy` runs the server, `jouletune run --llm` tunes it under a generated load, once
for each limit. The rival sets one knob after the other, each to the best of all its values, with as many
windows. Then all are measured in turns with the defaults, and at last the server is killed under load.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agents.host.machine import HostClock
from agents.target.side import Side
from agents.workloads import open_workload
from tests.bench.result import header
from tests.bench.tuned_command import DEADLINE_S, TOP, saving
from tests.engines.gguf_model import write_gguf
from tests.engines.text.model import TextModelConfig
from tests.integration.stage import JOULETUNE
from tests.llama.build import llama_server
from tests.llama.models import weights
from tests.llama.running import RunningProxy, running
from tests.processes import command_line, kill, run_to_end
from tuner.cli.run.llm import LlmRequest, write_files
from tuner.core import MeasurementError, Setting, Value

KNOBS = ("threads=2,1", "ubatch_size=512,64", "cpu_quota=200,100")
"""The first value is llama-server's default on two cores; the quota is in percent of one core."""
TARGET = TextModelConfig(
    vocab=258, dim=512, layers=12, heads=8, kv_heads=4, hidden=1536, context=1024
)
"""Larger than a core's caches: a token's time is that of reading the weights, as in real models."""
DRAFT = replace(TARGET, layers=1)
LOAD = "callers=2,prompt=32-128,output=32"
LIMITS = (1.1, 1.3)
"""The limits on the median time per token, relative to the baseline: one study each."""
METRIC, LATENCY = "cpu_time_ms", "tpot_p50_ms"
SHOWN = (LATENCY, METRIC, "ttft_p50_ms", "throughput_per_s")
WINDOW_S, TRIALS, ROUNDS = 6.0, 8, 6
WARM_S, MOST_S = 2.0, 60.0
STUDY_WINDOW_S = 5.0
"""A window of the study is extended up to six times, until its means are precise enough."""
KILL_S = 2.0


@dataclass(frozen=True)
class Bench:
    """The proxy, the side that measures it as `run --llm` does, and its metrics, the awaited one first."""

    proxy: RunningProxy
    side: Side
    shown: Sequence[str] = SHOWN

    def measured(self, setting: Setting) -> dict[str, float]:
        """Return the means of a window at a setting; infinite if there is no answer within a minute."""
        self.side.actuator.apply(setting)
        first = self.side.meter.start()
        time.sleep(WARM_S)
        first.stop()
        began = time.monotonic()
        window = self.side.meter.start()
        time.sleep(WINDOW_S)
        while self.shown[0] not in window.read().estimates and time.monotonic() < began + MOST_S:
            time.sleep(1.0)
        seen = window.stop()
        tokens = seen.totals.get("items", 0.0)
        return {
            **dict.fromkeys(self.shown, math.inf),
            **{name: one.mean for name, one in seen.estimates.items()},
            METRIC: 1000.0 * seen.totals["cpu_s"] / tokens if tokens else math.inf,
            "throughput_per_s": tokens / (time.monotonic() - began),
        }


def one_after_the_other(bench: Bench, most: float) -> tuple[dict[str, Value], int]:
    """Return the setting of a search that fixes each knob before the next, and its windows."""
    space = bench.side.space
    setting = dict(space.default)
    best = bench.measured(setting)
    limit, windows = most * best[LATENCY], 1
    for knob in space.knobs:
        if knob.condition is not None and not knob.condition.holds(setting[knob.condition.knob]):
            continue
        for value in knob.values:
            if value == knob.default:
                continue
            tried = {**setting, knob.name: value}
            seen, windows = bench.measured(tried), windows + 1
            if seen[LATENCY] <= limit and seen[METRIC] < best[METRIC]:
                setting, best = tried, seen
    return setting, windows


def jointly(bench: Bench, folder: Path, most: float, share: float) -> dict[str, Any]:
    """Return the report of `jouletune run --llm`, and its seconds from the start of the command."""
    limit = f"{LATENCY} <= {most}x baseline"
    words = ["run", "--llm", bench.proxy.url, "--device", "cpu", "--generate-load", LOAD]
    words += ["--allow-restart", "--objective", METRIC, "--constraint", limit]
    words += ["--trials", str(TRIALS)]
    words += ["--window", str(STUDY_WINDOW_S), "--foreign-share", str(share), "--json"]
    began = time.monotonic()
    done = run_to_end(
        [*JOULETUNE, *words, "--state-dir", str(folder)],
        env={**os.environ, "PYTHONPATH": str(TOP)},
        stdin=subprocess.DEVNULL,
        timeout=DEADLINE_S,
    )
    seconds = time.monotonic() - began
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return {**json.loads(done.stdout), "seconds": seconds}


def in_turns(bench: Bench, arms: Mapping[str, Setting], rounds: int = ROUNDS) -> dict[str, Any]:
    """Measure the arms in turns; return each one's means, windows, and paired saving over the defaults."""
    settings = list({tuple(setting.items()): setting for setting in arms.values()}.values())
    seen: list[list[dict[str, float]]] = [[] for _ in settings]
    for number in range(rounds):
        for at in range(len(settings))[:: 1 if number % 2 else -1]:
            seen[at].append(bench.measured(settings[at]))
    of = {arm: seen[settings.index(setting)] for arm, setting in arms.items()}
    base = [one[METRIC] for one in of["defaults"]]
    return {
        arm: {
            "setting": dict(arms[arm]),
            **{metric: sum(one[metric] for one in windows) / rounds for metric in bench.shown},
            "windows": windows,
            **saving([one[METRIC] for one in windows], base),
        }
        for arm, windows in of.items()
    }


def killed(bench: Bench, setting: Setting) -> dict[str, Any]:
    """Kill the server under load; return the number of restarts, and whether its setting is kept."""
    bench.side.actuator.apply(setting)
    before = bench.proxy.stats()
    window = bench.side.meter.start()
    time.sleep(KILL_S)
    kill(bench.proxy.stats()["pids"][-1])
    time.sleep(WINDOW_S)
    with suppress(MeasurementError):  # its counters restarted: this window is no measurement
        window.stop()
    after = bench.proxy.stats()
    words = command_line(after["pids"][-1])
    return {
        "restarts": after["restarts"] - before["restarts"],
        "in_force": bench.side.actuator.read() == setting
        and words[words.index("--threads") + 1] == str(setting["threads"]),
    }


@contextmanager
def opened(folder: Path) -> Iterator[Bench]:
    """Start the proxy over a real llama-server. Raises Unbuildable: it cannot be built."""
    for name, shape in (("target", TARGET), ("draft", DRAFT)):
        write_gguf(folder / f"{name}.gguf", name, shape, weights(TARGET))
    quota = str(TOP / "docs/examples/engines/cpu_quota.py")
    server = [sys.executable, quota, str(llama_server("0.3.36")), "-np", "4", "-c", "4096"]
    drafts = ["--draft", f"model={folder / 'draft.gguf'}", "--draft", "ngram-mod", "--longest", "4"]
    knobs = [word for knob in KNOBS for word in ("--knob", knob)]
    command = [*drafts, *knobs, "--state-dir", str(folder), "--", *server]
    with running([*command, "-m", str(folder / "target.gguf")], folder) as proxy:
        written = write_files(LlmRequest(proxy.url, "cpu", LOAD), folder / "llm")
        side = open_workload(written.workload, seed=0, state_dir=folder, clock=HostClock())
        with closing(side):
            yield Bench(proxy, side)


def measured(folder: Path, share: float) -> dict[str, Any]:
    """Return the whole comparison."""
    with opened(folder) as bench:
        arms: dict[str, Setting] = {"defaults": dict(bench.side.space.default)}
        searches = []
        for most in LIMITS:
            study = jointly(bench, folder / f"joint-{most}", most, share)
            sequential, windows = one_after_the_other(bench, most)
            arms[f"sequential {most}"] = sequential
            arms[f"joint {most}"] = {**arms["defaults"], **(study["best"] or {}).get("setting", {})}
            searches.append(
                {
                    "limit": most,
                    "trials": len(study["trials"]),
                    "foreign": max(one["foreign"] or 0.0 for one in study["trials"]),
                    "report_s": study["seconds"],
                    "windows": windows,
                    "why": study["why"],
                }
            )
        compared = in_turns(bench, arms)
        sys.stdout.write(json.dumps([searches, compared]) + "\n")
        return {
            "searches": searches,
            "arms": compared,
            "settings": sum(1 for _ in bench.side.space.grid()),
            "changes": bench.proxy.stats()["switches"],
            "killed": killed(bench, arms[f"joint {LIMITS[-1]}"]),
        }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--output", type=Path, required=True)
    words.add_argument("--foreign-share", type=float, default=0.3)
    given = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="jouletune-joint-") as name:
        result = measured(Path(name), given.foreign_share)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps({**result, **header()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
