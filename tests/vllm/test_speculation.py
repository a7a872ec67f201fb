"""The drafts of a real vLLM behind the proxy: profiled by load, and chosen by the workload."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.llama.running import RunningProxy, running
from tests.vllm.build import missing
from tests.vllm.serving import ENVIRON, START_S, jouletune, serving

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
MOST = 4
"""Requests that this vLLM decodes together."""
LENGTHS = (0, 3)
GREEDY = "callers=1,prompt=32,output=48"
"""Random weights repeat themselves in greedy text, so n-grams of it are accepted."""


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProxy]:
    folder = tmp_path_factory.mktemp("proxy")
    words = ["--state-dir", str(folder), "--knob", "speculative_tokens=0,3", "--"]
    with pytest.MonkeyPatch.context() as patched:
        for name, value in ENVIRON.items():
            patched.setenv(name, value)
        words += [*serving(), "--max-num-seqs", str(MOST)]
        with running(words, folder, START_S) as started:
            yield started


def service(proxy: RunningProxy, folder: Path, temperature: float) -> Path:
    """Write the file of the proxied vLLM under a load whose texts are greedy at a temperature of 0."""
    file = folder / "vllm.toml"
    load = ["--generate-load", GREEDY, "--write-config", str(file)]
    done = jouletune("run", "--llm", proxy.url, *load)
    assert done.returncode == 0, done.stderr
    bodies = file.with_suffix(".jsonl")
    lines = [json.loads(line) for line in bodies.read_text().splitlines()]
    bodies.write_text("".join(json.dumps({**b, "temperature": temperature}) + "\n" for b in lines))
    return file


@pytest.mark.parametrize(("temperature", "pays"), [(0.0, True), (1.5, False)])
def test_drafts_are_held_on_text_that_repeats_and_not_on_random_text(
    proxy: RunningProxy, tmp_path: Path, temperature: float, pays: bool
) -> None:
    spec, state = f"service:{service(proxy, tmp_path, temperature)}", tmp_path / "state"
    options = ["--device", "cpu", "--workload", spec, "--state-dir", str(state), "--json"]
    options += ["--objective", "minimize cpu_time_ms", "--no-constraint", "--trials", "1"]
    done = jouletune("run", *options, "--window", "20", "--foreign-share", "1")
    assert done.returncode == 0, done.stderr
    study: dict[str, Any] = json.loads(done.stdout)
    held = study["study"]["confirmed"] or study["study"]["baseline"]["setting"]
    shown = [
        (trial["setting"], trial["metrics"].get("cpu_time_ms"), trial["why"])
        for trial in study["trials"]
    ]
    assert held["speculative_tokens"] == (3 if pays else 0), (study["study"]["baseline"], shown)
    shutil.rmtree(state)


def test_a_profile_has_the_accepted_drafts_by_position_at_each_load(
    proxy: RunningProxy, tmp_path: Path
) -> None:
    prompts, file = tmp_path / "prompts.json", tmp_path / "profile.csv"
    prompts.write_text(json.dumps([f"def f{i}(x):\n    return x\n" * 3 for i in range(64)]))
    spec = f"llama_cpp:{proxy.url}#prompts:{prompts},tokens:48"
    options = ["--window-s", "4", "--most-foreign", "1", "--out", str(file), "--json"]
    done = jouletune("speculation", "profile", "--workload", spec, *options)
    assert done.returncode == 0, done.stderr
    with file.open() as text:
        rows = list(csv.DictReader(text))
    drafted = [row for row in rows if row["speculation_length"] == "3"]
    assert len({row["decoding_requests"] for row in drafted}) >= 2, rows
    for row in drafted:
        first, *_, last = (float(row[f"accepted_at_{i}"]) for i in (1, 2, 3))
        assert 1.0 >= first >= last >= 0.0 and first > 0.0, row
        assert float(row["throughput_per_s"]) > 0.0
    assert proxy.stats()["accepted_by_position"][0] > 0
    assert json.loads(done.stdout)["plan"]
