"""Tunes inference engines: `python -m tests.engines.tuned.bench --python PYTHON --output FILE.json`.

Each engine's program is a command of docs/examples/engines. The setting that `jouletune run` chooses is
then run in turns with the engine's defaults and with its vendor's advice. Results of other engines stay
in the file, so that each engine can be measured while the machine is idle.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.result import header
from tests.bench.tuned_command import DEADLINE_S, TOP, chosen, saving, studied
from tests.llama.build import Unbuildable, llama_server

EXAMPLES = TOP / "docs/examples/engines"
LATENCY = "latency_ms <= 1.1x baseline"
ROUNDS = 6


@dataclass(frozen=True)
class EngineTask:
    """One engine: its program, its knobs with the defaults first, and its vendor's advice."""

    title: str
    program: str
    knobs: Mapping[str, Sequence[str]]
    advice: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    trials: int = 8

    @property
    def defaults(self) -> dict[str, str]:
        """The first value of each knob."""
        return {name: values[0] for name, values in self.knobs.items()}

    def words(self, inputs: Sequence[str], setting: Mapping[str, str]) -> list[str]:
        """Return the words of a command at a setting."""
        flags = [word for name, value in setting.items() for word in (f"--{name}", value)]
        return [str(EXAMPLES / self.program), *inputs, *flags]


TASKS = {
    "onnx_runtime": EngineTask(
        "ONNX Runtime, convolutional network",
        "onnx_runtime.py",
        {"threads": ("0", "1", "2"), "batch": ("1", "4", "16", "64"), "spin": ("1", "0")},
        source="its defaults are the advice (Thread management)",
    ),
    "openvino": EngineTask(
        "OpenVINO, convolutional network",
        "openvino_infer.py",
        {
            "hint": ("LATENCY", "THROUGHPUT"),
            "threads": ("0", "1", "2"),
            "streams": ("0", "1", "2"),
            "batch": ("1", "4", "16"),
        },
        {"hint": "THROUGHPUT"},
        "the hint THROUGHPUT (High-level Performance Hints)",
    ),
    "ctranslate2": EngineTask(
        "CTranslate2, decoder",
        "ctranslate2_generate.py",
        {
            "threads": ("0", "1", "2"),
            "replicas": ("1", "2"),
            "batch": ("1", "8", "32"),
            "type": ("default", "int8"),
        },
        {"type": "int8", "batch": "32"},
        "int8 and a larger batch (Performance tips)",
    ),
    "llama.cpp": EngineTask(
        "llama.cpp, server",
        "llama_server.py",
        {
            "threads": ("-1", "1", "2"),
            "parallel": ("1", "2", "4"),
            "ubatch": ("512", "64"),
            "cache": ("f16", "q8_0"),
        },
        {"threads": "2"},
        "one thread per physical core (tools/server/README.md)",
    ),
}


def inputs_of(name: str, python: str, folder: Path) -> list[str]:
    """Return the words of the command for the model. Raises Unbuildable: llama-server cannot be built."""
    if name == "ctranslate2":
        return [str(folder / "decoder")]
    if name != "llama.cpp":
        return [str(folder / "small.onnx")]
    from tests.engines.gguf_model import write_gguf
    from tests.llama.models import TARGET, weights

    model = folder / "target.gguf"
    write_gguf(model, "target", TARGET, weights(TARGET))
    return [str(llama_server("0.3.36")), str(model)]


def tuned(name: str, python: str, folder: Path, share: float) -> dict[str, Any]:
    """Tune one engine, and compare the chosen setting with its defaults and its vendor's advice."""
    task = TASKS[name]
    inputs = inputs_of(name, python, folder)
    result = studied(
        task.title,
        [python, *_template(task, inputs)],
        task.knobs,
        _options(task, share),
        folder,
    )
    picked = chosen(result, task.defaults)
    arms = {"defaults": task.defaults, "advice": {**task.defaults, **task.advice}, "chosen": picked}
    measured = _compared({arm: [python, *task.words(inputs, at)] for arm, at in arms.items()})
    return {
        "title": task.title,
        "advice": task.source,
        "chosen": {k: v for k, v in picked.items() if v != task.defaults[k]},
        "trials": len(result["trials"]),
        "why": result["why"],
        "arms": measured,
    }


def _template(task: EngineTask, inputs: Sequence[str]) -> list[str]:
    return task.words(inputs, {name: f"{{{name}}}" for name in task.knobs})


def _options(task: EngineTask, share: float) -> list[str]:
    """Return the options of a study: minimise CPU time, with runs no longer than by default."""
    limits = ["--objective", "cpu_time_ms", "--constraint", LATENCY, "--foreign-share", str(share)]
    return [*limits, "--runs", "3", "--trials", str(task.trials)]


def _compared(commands: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Run the arms in turns; return the seconds of each, and its paired saving over the defaults."""
    runs: dict[str, list[tuple[float, float]]] = {arm: [] for arm in commands}
    for number in range(ROUNDS):
        order = list(commands) if number % 2 else list(commands)[::-1]
        for arm in order:
            runs[arm].append(_run(commands[arm]))
    table = {}
    for arm, seen in runs.items():
        table[arm] = {
            "cpu_s": statistics.fmean(cpu for cpu, _ in seen),
            "wall_s": statistics.fmean(wall for _, wall in seen),
            **saving([cpu for cpu, _ in seen], [cpu for cpu, _ in runs["defaults"]]),
        }
    return table


def _run(command: Sequence[str]) -> tuple[float, float]:
    """Return the CPU seconds of a run with its children, and its wall seconds."""
    before, began = os.times(), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=DEADLINE_S)
    after = os.times()
    cpu_s = sum(
        getattr(after, k) - getattr(before, k) for k in ("children_user", "children_system")
    )
    return cpu_s, time.monotonic() - began


def worse(result: Mapping[str, Any]) -> bool:
    """Return whether the chosen setting is worse than the defaults by more than two standard errors."""
    chosen = result["arms"]["chosen"]
    return bool(chosen["saving_percent"] < -2.0 * chosen["saving_stderr_percent"])


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("names", nargs="*", choices=[[], *TASKS], default=[])
    words.add_argument("--python", required=True, help="the Python that has the engines")
    words.add_argument("--output", type=Path, required=True)
    words.add_argument("--foreign-share", type=float, default=0.3)
    given = words.parse_args()
    python = str(Path(given.python).absolute())
    results = json.loads(given.output.read_text()) if given.output.exists() else {}
    with tempfile.TemporaryDirectory(prefix="jouletune-engines-") as name:
        folder = Path(name)
        maker = str(Path(__file__).with_name("small_models.py"))
        subprocess.run([python, maker, name], check=True, timeout=DEADLINE_S)
        for engine in given.names or list(TASKS):
            try:
                results[engine] = tuned(engine, python, folder, given.foreign_share)
            except Unbuildable as error:
                sys.stdout.write(f"{engine}: skipped, {error}\n")
                continue
            given.output.parent.mkdir(parents=True, exist_ok=True)
            given.output.write_text(json.dumps({**results, **header()}, indent=2) + "\n")
            sys.stdout.write(f"{engine}: {results[engine]['chosen']}\n")
    bad = [name for name, one in results.items() if "arms" in one and worse(one)]
    if bad:
        sys.exit(f"worse than the defaults: {', '.join(bad)}")


if __name__ == "__main__":
    main()
