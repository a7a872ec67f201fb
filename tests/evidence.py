"""Studies with evidence, and damages of their archives, for tests of `tuner.verify`."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import random
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from agents.devices.catalogue import open_device
from agents.target.target import Target
from tests.builders import Time
from tests.extend.lab import DEVICE, lab
from tuner import verify
from tuner.core import Terms
from tuner.service.operations import Operations
from tuner.wire import StudyDraft

Doc = Any
Damage = Callable[[random.Random, dict[str, bytes], Doc], bool]
"""Changes the files or the document of an archive; returns whether it found something to change."""


def written(verbs: Operations, study: str, to: Path) -> Path:
    """Write the archive of a study."""
    made = verbs.evidence(study)
    content = base64.b64decode(made.content)
    assert hashlib.sha256(content).hexdigest() == made.sha256
    to.write_bytes(content)
    return to


def drafted(seed: int = 0, trials: int = 4) -> StudyDraft:
    """Return the draft of a study of the lab's device."""
    return StudyDraft(
        devices=(DEVICE,),
        constraints=("latency_p99_ms <= 1.5x baseline",),
        policy="sobol",
        seed=seed,
        terms=Terms(trials=trials, window_s=10.0, max_window_s=60.0, control_share=0.0),
        who="alice",
    )


def simulated(
    folder: Path, preset: str, seed: int = 0, trials: int = 4, hold: int = 0
) -> tuple[Operations, str]:
    """Run a study of a simulated device in one process; return its operations and its id."""
    side, time = open_device(f"simulated:{preset}", seed=seed, state_dir=None), Time()
    folder.mkdir()
    with lab(folder, Target((side,)), time) as opened:
        study = opened.tune(drafted(seed, trials)).id
        for _ in range(hold):
            opened.agent.step()
    return opened.verbs, study


def opened(archive: Path) -> tuple[dict[str, bytes], Doc]:
    """Return the files of an archive, and its document."""
    with zipfile.ZipFile(archive) as bundle:
        files = {name: bundle.read(name) for name in bundle.namelist()}
    return files, json.loads(files["evidence.json"])


def closed(files: dict[str, bytes], doc: Doc, to: Path, *, sums: bool) -> Path:
    """Write an archive again, with or without new digests."""
    files = {**files, "evidence.json": json.dumps(doc, indent=1, sort_keys=True).encode()}
    if sums:
        own = [n for n in files if n != "SHA256SUMS"]
        lines = (f"{hashlib.sha256(files[n]).hexdigest()}  {n}\n" for n in own)
        files["SHA256SUMS"] = "".join(lines).encode()
    return packed(files, to)


def packed(files: dict[str, bytes], to: Path) -> Path:
    """Write files as an archive."""
    with zipfile.ZipFile(to, "w") as bundle:
        for name, content in files.items():
            bundle.writestr(name, content)
    return to


def _sampled(chance: random.Random, files: dict[str, bytes], change: Callable[[Doc], bool]) -> bool:
    name = chance.choice([n for n in files if n.startswith("samples/")])
    raw = json.loads(files[name])
    changed = change(raw)
    files[name] = json.dumps(raw).encode()
    return changed


def counter_back(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    def change(raw: Doc) -> bool:
        values = raw["totals"][chance.choice(["energy_j", "items"])]
        at = chance.randrange(1, len(values))
        values[at] = values[at - 1] * chance.uniform(0.1, 0.9)
        return True

    return _sampled(chance, files, change)


def gap(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    if chance.random() < 0.5:
        at = chance.randrange(len(doc["windows"]))
        del doc["windows"][at]
        return True

    def change(raw: Doc) -> bool:
        raw["seconds"].pop()
        for values in raw["totals"].values():
            values.pop()
        return True

    return _sampled(chance, files, change)


def order(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    own = [w for w in doc["windows"] if w["phase"] == "confirming"] or doc["windows"]
    a, b = chance.sample(own, 2)
    for key in ("started_at", "ended_at"):
        a[key], b[key] = b[key], a[key]
    return bool(a["started_at"] != b["started_at"])


def energy(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    own = [w for w in doc["windows"] if "energy_j" in w["estimates"]]
    window, factor = chance.choice(own), chance.choice([0.2, 4.0, 10.0])
    window["estimates"]["energy_j"] = [
        x * factor if isinstance(x, float) else x for x in window["estimates"]["energy_j"]
    ]
    return True


def absent(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    def change(raw: Doc) -> bool:
        raw["totals"]["energy_j"][0] = -5.0
        return True

    return _sampled(chance, files, change)


def formula(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    window = chance.choice([w for w in doc["windows"] if w["samples"]])
    name = chance.choice(["energy_j", "power_w"])
    window["estimates"][name] = [0.5 * float(x) for x in window["estimates"][name]]

    for file in window["samples"]:
        raw = json.loads(files[file])
        raw["ratios"].pop(name, None)
        files[file] = json.dumps(raw).encode()
    return True


def other_formula(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    """Count an item's energy by the second, in the samples and in the estimate."""
    window = chance.choice([w for w in doc["windows"] if w["samples"]])
    file = window["samples"][0]
    raw = json.loads(files[file])
    if not {"energy_j", "power_w"} <= raw["ratios"].keys():
        return False
    raw["ratios"]["energy_j"] = raw["ratios"]["power_w"]
    window["estimates"]["energy_j"] = window["estimates"]["power_w"]
    files[file] = json.dumps(raw).encode()
    return True


def infinite(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    estimates = chance.choice([w for w in doc["windows"] if w["estimates"]])["estimates"]
    estimates[chance.choice([*estimates])][chance.choice([0, 1, 2])] = "inf"
    return True


def figure(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    name = chance.choice([*doc["figures"]])
    text = doc["figures"][name]
    digits = [k for k, letter in enumerate(text) if letter in "123456789"]
    if digits:
        at = chance.choice(digits)
        doc["figures"][name] = text[:at] + str((int(text[at]) + 3) % 10) + text[at + 1 :]
    return bool(digits)


def held(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    """Change a held window's items, energy or time."""
    own = [h for h in doc["held"] if h["basis"] and h["setting"] != doc["study"]["baseline"]]
    name = chance.choice(["completed", "mean", "covers_s", "seconds"])
    chance.choice(own)[name] *= chance.choice([0.5, 3.0])
    return True


def held_time(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    """Let a held window represent, or claim, more time than passed since the one before it."""
    name = chance.choice(["covers_s", "speaks_s"])
    chance.choice(doc["held"][1:])[name] *= chance.uniform(1.2, 5.0)
    return True


def not_a_number(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    """Halve a window's energy, and write NaN into the reading that contradicts it."""
    window = chance.choice([w for w in doc["windows"] if w["samples"]])
    for name in ("energy_j", "power_w"):
        window["estimates"][name] = [0.5 * float(x) for x in window["estimates"][name]]
    raw = json.loads(files[window["samples"][0]])
    raw["totals"]["energy_j"][0] = math.nan
    files[window["samples"][0]] = json.dumps(raw).encode()
    return True


def open_bound(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    """Open a bound that the samples close."""
    window = chance.choice([w for w in doc["windows"] if w["samples"]])
    raw = json.loads(files[window["samples"][0]])
    raw["ratios"]["throughput_per_s"] = ["items", "seconds", 1.0]
    files[window["samples"][0]] = json.dumps(raw).encode()
    pairs = [(0.0, 0.0), *zip(raw["totals"]["items"], raw["seconds"], strict=True)]
    own = verify.ratio([(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(pairs)], 1.0)
    assert own is not None
    window["estimates"]["throughput_per_s"] = [*own[:4], "inf"]
    return True


def negative(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    """Let exploring take less than no time."""
    window = chance.choice([w for w in doc["windows"] if w["estimates"]])
    window[chance.choice(["seconds", "overhead_s"])] *= -1.0
    return bool(window["seconds"] < 0.0 or window["overhead_s"] < 0.0)


def two_devices(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    """Claim a second device's samples, so that the energy need not follow from one's."""
    window = chance.choice([w for w in doc["windows"] if w["samples"]])
    window["samples"] *= 2
    window["estimates"]["energy_j"] = [0.8 * float(x) for x in window["estimates"]["energy_j"]]
    return True


def basis(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    """Count a held window's saving from the setting itself."""
    own = [h for h in doc["held"] if h["basis"] and h["setting"] != doc["study"]["baseline"]]
    chance.choice(own)["basis"] = [["best", 1.0]]
    return True


def runs(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    """Leave readings out, and claim that each of the others ended with a run of a program."""

    def change(raw: Doc) -> bool:
        raw["runs"] = True
        for values in (raw["seconds"], *raw["totals"].values()):
            del values[1:-1]
        return True

    return _sampled(chance, files, change)


def origin(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    """Give the energy of a window without samples another origin, and a tenth of its joules."""
    own = [w for w in doc["windows"] if not w["samples"] and "energy_j" in w["estimates"]]
    window = chance.choice(own)
    mean, stderr, n, low, high = map(float, window["estimates"]["energy_j"])
    window["estimates"]["energy_j"] = [0.1 * mean, 0.1 * stderr, n, 0.1 * low, 0.1 * high]
    window["origins"]["energy_j"][0] = "estimated"
    return True


def chosen(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    """Leave a window out of those that relative limits count from."""
    own = doc["pools"]["solid"]
    own.pop(chance.randrange(len(own)))
    return True


def phase(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    """Give a window the phase tuning, and claim that steps of an agent are among those."""
    doc["beyond"]["tuning"] = "x"
    chance.choice([w for w in doc["windows"] if w["phase"] == "baseline"])["phase"] = "tuning"
    return True


def alternates(chance: random.Random, files: dict[str, bytes], doc: Doc) -> bool:
    """Exchange two confirming windows, or leave one out, of a study that claims not to alternate."""
    doc["study"]["alternates"] = False
    if chance.random() < 0.5:
        doc["pools"]["best"].pop()
        return True
    own = [w for w in doc["windows"] if w["phase"] == "confirming"]
    a, b = chance.sample(own, 2)
    a["setting"], b["setting"] = b["setting"], a["setting"]
    return True


KINDS: dict[str, Damage] = {
    "counter_back": counter_back,
    "gap": gap,
    "order": order,
    "energy": energy,
    "figure": figure,
    "absent": absent,
    "formula": formula,
    "infinite": infinite,
    "other_formula": other_formula,
    "held": held,
    "not_a_number": not_a_number,
    "open_bound": open_bound,
    "negative": negative,
    "two_devices": two_devices,
    "basis": basis,
}
"""The kinds of damage that docs/evidence.md lists as found, also with new digests."""
FITTED: dict[str, Damage] = {
    "held_time": held_time,
    "order": order,
    "counter_back": counter_back,
    "not_a_number": not_a_number,
    "open_bound": open_bound,
    "negative": negative,
    "two_devices": two_devices,
    "basis": basis,
}
"""The kinds that are found even if all figures are computed anew."""
LISTED: dict[str, tuple[Damage, str]] = {
    "held": (held, "held windows: "),
    "alternates": (alternates, "order of confirming windows"),
    "runs": (runs, "gaps between the runs"),
    "origin": (origin, "of different origins"),
    "chosen": (chosen, "the limits' baseline windows"),
    "phase": (phase, "tuning: "),
}
"""The kinds that are not found if all figures are computed anew, and the name of each in the result."""
