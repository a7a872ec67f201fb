"""The evidence of a study as one archive, which a stranger checks with `tuner/verify.py` alone.

It has numbers, and the names of knobs and metrics; no host, user, command, path or reason.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from tuner import verify
from tuner.core import (
    CAPACITY,
    ENERGY,
    IDLE,
    IDLE_UNLOADED,
    POWER,
    BaselineCourse,
    BaselinePart,
    Context,
    Estimate,
    Mode,
    Past,
    Phase,
    Setting,
    Study,
    Trial,
    TrialState,
    Value,
    Worth,
    billed_windows,
    called,
    implausible,
    quantity_of,
    windows,
)
from tuner.installed import version
from tuner.service.reports import StudyRecord
from tuner.service.views import alternating, chosen
from tuner.study.loop import Loop
from tuner.study.moves import needed_metrics
from tuner.wire import StudyReport

FORMAT = 1
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every file in an archive: equal content gives equal bytes."""
UNPROVEN = """\
What this archive does not prove

- That its producer measured these numbers. It shows only that they fit each other.
- That a meter is right. Its own error and its own power are not in the figures; `own_cpu_s` in the samples
  is the CPU time of the program that measured. The counters of RAPL (energy_uj) can be read by root alone.
- That no better setting exists, or that this one saves the same on another day, device or load.
- What idle time saved: held windows without an item do not count. A sum is too high if the held setting
  idles at more power than the baseline.
- The order in which settings were tried. The seed fixes it for the same release and the same past.

Check it with a verify.py from a release, not with the one in this archive: python3 -I verify.py FILE
"""
WORD = re.compile(r"[A-Za-z0-9_-]{1,24}")
"""The texts of knobs that are exported as they are, such as `powersave` and `int8`."""
Json = dict[str, Any]


def archive(loop: Loop, record: StudyRecord, report: StudyReport) -> bytes:
    """Return the archive of the evidence of a record's report; equal content gives equal bytes."""
    study, samples = record.study, loop.store.trials.samples(record.study.id)
    measured = {trial.number for trial in record.trials if trial.measurement}
    names = {
        key: f"samples/{key[0]:05d}-{study.devices.index(key[1]) + 1}.json"
        for key in samples
        if key[1] in study.devices and key[0] in measured
    }
    document = _document(loop, record, report, names)
    files = {
        "evidence.json": json.dumps(document, indent=1, sort_keys=True).encode(),
        "UNPROVEN.txt": UNPROVEN.encode(),
        "verify.py": Path(verify.__file__).read_bytes(),
        **{name: samples[key] for key, name in names.items()},
    }
    sums = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
    files["SHA256SUMS"] = "".join(sums).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in sorted(files.items()):
            bundle.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _document(
    loop: Loop,
    record: StudyRecord,
    report: StudyReport,
    names: Mapping[tuple[int, str], str],
) -> Json:
    """Return the document that `verify.py` reads besides the samples."""
    study, trials, revisions = record.study, record.trials, record.revisions
    past, declared = Past(study=study, trials=tuple(trials)), study.quantities
    best = chosen(study, past.evidence)
    winner = None if best is None or study.rests(best.setting) else best.setting
    none: dict[str, list[int]] = {"baseline": [], "best": [], "solid": []}
    pools = none | _pools(past, winner)
    course, held = BaselineCourse.of(study, trials), []
    for window, covers_s, parts in billed_windows(trials, record.held, revisions, declared, course):
        held.append(
            {
                "began": window.started_at.timestamp(),
                "seconds": window.seconds,
                "covers_s": covers_s,
                "speaks_s": window.speaks_s,
                "completed": window.completed,
                "mean": window.mean,
                "stderr": window.stderr,
                "setting": exported(dict(window.setting)),
                "basis": [[_basis(p, course, window.context, pools), p.share] for p in parts],
            }
        )
    judged = [study.objective.metric, *(c.metric for c in study.constraints)]
    metrics = dict.fromkeys([*judged, *(n for t in trials for n in t.shown)])
    plan, bill = study.plan, report.bill
    described = {
        "id": study.id,
        "policy": study.policy,
        "seed": study.seed,
        "knobs": {
            k.name: {"values": [*map(_word, k.values)], "default": _word(k.default)}
            for k in study.space.knobs
        },
        "baseline": exported(study.baseline),
        "best": winner if winner is None else exported(winner),
        "metric": study.objective.metric,
        "needed": needed_metrics(study),
        "sign": study.objective.sign,
        "constraints": [(c.metric, c.op, c.bound, c.relative) for c in study.constraints],
        "trials": len(trials),
        "devices": len(study.devices),
        "share": bill.share,
        "alternates": not study.terms.plan_by and (plan is None or len(plan.rows) < 2),
        "names": {
            "energy": called(ENERGY, declared),
            "power": called(POWER, declared),
            "capacity": called(CAPACITY, declared),
        },
        "units": {n: quantity_of(n, declared).unit for n in metrics},
        "tails": [n for n in metrics if quantity_of(n, declared).tail],
    }
    figures = _figures(report, winner, described)
    beyond = _beyond(report, study, figures)
    return {
        "format": FORMAT,
        "release": version(),
        "made_at": loop.now().timestamp(),
        "figures": {n: text for n, text in figures.items() if n not in beyond},
        "beyond": beyond,
        "held": held,
        "pools": pools,
        "periods": {p.period: p.since.timestamp() for p in bill.periods}
        | ({"in all": bill.whole.since.timestamp()} if bill.whole else {}),
        "revisions": [{"at": r.at.timestamp(), "phase": r.study.phase} for r in revisions],
        "windows": [_window(study, trial, names) for trial in trials],
        "study": described,
    }


def _pools(past: Past, winner: Setting | None) -> dict[str, list[int]]:
    """Return the numbers of the windows that each figure of the report is pooled from, by pool.

    Empty for a study that follows a load: its windows are moved to one load before they are pooled.
    """
    study, evidence = past.study, past.evidence
    if study.terms.plan_by:
        return {}
    base, own = evidence.of(study.baseline), evidence.of(winner) if winner is not None else None
    tried = base.trials if base else ()
    pools = {"solid": _numbers(windows(tried, least=Worth.SOLID))}
    duel = alternating(past, winner) if winner is not None else None
    if duel is not None:
        return pools | {"baseline": _numbers(duel[0]), "best": _numbers(duel[1])}
    for name, candidate in (("baseline", base), ("best", own)):
        group = candidate.trials if candidate else ()
        done = [t for t in group if t.state is TrialState.COMPLETED]
        pools[name] = _numbers(done or group)
    return pools


def _basis(
    part: BaselinePart, course: BaselineCourse, load: Context, pools: dict[str, list[int]]
) -> str:
    """Return the name of the pool of a baseline's measurement, after adding it to the pools.

    A control window is a pool by itself; the first baseline has a pool for each load.
    """
    if part.number:
        pools[f"control {part.number}"] = [part.number]
        return f"control {part.number}"
    past = course.past
    candidate = past.like(load).of(past.study.baseline) if past else None
    numbers = _numbers(windows(candidate.trials, least=Worth.SOLID)) if candidate else []
    name = f"first~{','.join(map(str, numbers))}"
    pools[name] = numbers
    return name


def _numbers(trials: Sequence[Trial]) -> list[int]:
    """Return the numbers of the trials."""
    return [trial.number for trial in trials]


def _window(study: Study, trial: Trial, names: Mapping[tuple[int, str], str]) -> Json:
    """Return a trial and its window, without texts."""
    window, declared = trial.measurement, study.quantities
    kept = [names[k] for d in trial.on(study.devices) if (k := (trial.number, d)) in names]
    return {
        "number": trial.number,
        "phase": trial.phase,
        "state": trial.state,
        "censored": trial.censored,
        "setting": exported(trial.setting),
        "context": trial.context,
        "alone": bool(trial.device),
        "started_at": trial.started_at.timestamp(),
        "ended_at": trial.ended_at.timestamp() if trial.ended_at else None,
        "estimates": {n: _numbers_of(e) for n, e in trial.shown.items()},
        "origins": {n: (e.origin, e.scope) for n, e in trial.shown.items()},
        "samples": kept if window else [],
        "implausible": bool(window and implausible(window, declared)),
        "began": window.started_at.timestamp() if window else None,
        "seconds": window.seconds if window else 0.0,
        "overhead_s": window.overhead_s if window else 0.0,
        "completed": window.load.completed if window else 0,
        "failed": window.load.failed if window else 0,
        "foreign": window.foreign if window else None,
        "throttled": window.throttled if window else (),
        "load": window.context if window else {},
    }


def exported(setting: Setting) -> Setting:
    """Return a setting as the archive has it; equal ones stay equal."""
    return {name: _word(value) for name, value in setting.items()}


def _word(value: Value) -> Value:
    """Return a value, or its digest if its text may be a path, a host or a command."""
    if not isinstance(value, str) or WORD.fullmatch(value):
        return value
    return f"sha256:{hashlib.sha256(value.encode()).hexdigest()[:16]}"


def _numbers_of(estimate: Estimate) -> list[float | str]:
    """Return an estimate as a list; JSON has no infinity, so an open bound is a text."""
    return [x if math.isfinite(x) else str(x) for x in astuple(estimate)[:5]]


def _figures(report: StudyReport, winner: Setting | None, study: Json) -> dict[str, str]:
    """Return the report's figures as it prints them."""
    bill, best = report.bill, report.best.metrics if report.best and winner is not None else {}
    base, other = (
        {n: (e.mean, e.stderr, float(e.n), e.low, e.high) for n, e in metrics.items()}
        for metrics in (report.baseline.metrics, best)
    )
    limits = [(limit.metric, limit.op, limit.value) for limit in report.study.limits]
    text = verify.compared(study, base, other, limits)
    text |= verify.cost(bill.seconds, bill.explored_j, bill.saving_w)
    if (gain := report.saving) is not None:
        text["saving"] = verify.percent(abs(gain.mean), gain.stderr)
    for one in (*bill.periods, *([bill.whole] if bill.whole else [])):
        if one.saved_j is not None:
            error, whole = one.stderr_j or 0.0, one.baseline_j
            saved = verify.saved(one.saved_j, error, whole, one.seconds, one.windows)
            text[f"saved {one.period}"] = saved
    return text


def _beyond(report: StudyReport, study: Study, text: Mapping[str, str]) -> dict[str, str]:
    """Return the figures of the report that the archive's windows do not give, with the reason."""
    beyond = {
        "windows that broke a limit": "no window has its verdict here",
        "figures within a reason": "reasons are not in the archive",
        "rows of a plan": "no row has a pool of its own",
    }
    if {IDLE, IDLE_UNLOADED} & report.baseline.metrics.keys():
        beyond["power without requests in kWh a day"] = "only its W is a metric of the windows"
    if report.bill.priced_by:
        beyond["cost and CO₂e"] = "the prices are not in the archive"
    if report.baseline_shift is not None:
        shifted = ("saving", "saving power", "payback")
        beyond |= dict.fromkeys(shifted, "it counts from the shifted baseline")
    if study.terms.mode is Mode.CONTINUOUS:
        beyond[Phase.TUNING] = "an agent's own steps arrive in any phase"
    if study.terms.plan_by:
        beyond |= {name: "moved to one load" for name in text if name != "exploring time"}
    return beyond
