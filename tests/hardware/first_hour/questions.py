"""The questions of the first hour: each with its answer, its data, and the product's rule it decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Report = Mapping[str, Any]
OPEN = "not answered"
LOADS = ("idle", "context", "steady", "memory", "on_off")
NVIDIA = "agents/devices/nvidia"


def questions(report: Report) -> list[dict[str, str]]:
    """Return each question with its answer, the parts that have its data, and the rule."""
    parts = report["parts"]
    steady, idle = parts.get("energy_steady", {}), parts.get("energy_idle", {})
    counter, listed = steady.get("counter_mj", {}), parts.get("who_works_here", {})
    steps = counter.get("interval_ms", {})
    known = [parts[f"energy_{name}"] for name in LOADS if f"energy_{name}" in parts]
    counters = [one["counter_mj"] for one in known if "interval_ms" in one.get("counter_mj", {})]
    longest = max((one["interval_ms"]["most"] for one in counters), default=None)
    back = sum(one["backwards"] for one in counters) if counters else None
    gpu, energy = report["gpu"], f"{NVIDIA}/energy.py"
    rows = (
        ("does a batch size save joules, and do both measurements agree?", _study(parts),
         "batch_study, evidence.zip", "tuner/core/savings.py"),
        ("does NVML list the load's process?", _listed(listed, report["load"]),
         "who_works_here, load", f"{NVIDIA}/sharing.py"),
        ("how often does the energy counter step, in ms?", steps.get("p50"),
         "energy_steady", f"{energy}: STEP_S"),
        ("the counter's quantum, in mJ?", counter.get("quantum"), "energy_steady", f"{energy}: counter_mj"),
        ("the counter over power under load?", _both(steady), "energy_steady", f"{energy}: AGREEMENT"),
        ("the counter over power when idle?", _both(idle), "energy_idle", f"{energy}: AGREEMENT"),
        ("the counter's longest freeze, in ms?", longest, "energy_*", f"{energy}: LONGEST_STEP_S"),
        ("how often was the counter reset?", back, "energy_*", "agents/target/joules.py: drawn"),
        ("power by scope, in mW?", listed.get("power_mw"), "who_works_here", f"{energy}: powers_w"),
        ("the slowest call, p99 in µs?", _slowest(parts), "calls_*", f"{NVIDIA}/nvml.py"),
        ("which calls fail as root?", _codes(parts.get("calls_root")), "calls_root", f"{NVIDIA}/limits.py"),
        ("which calls fail as nobody?", _codes(parts.get("calls_unprivileged")),
         "calls_unprivileged", "deploy/install.sh"),
        ("the list of graphics clocks?", gpu.get("graphics_mhz"), "gpu", f"{NVIDIA}/knobs.py: ranges"),
        ("the power limit: default, enforced, range, in mW?",
         [gpu[n] for n in ("default_mw", "enforced_mw", "limits_mw")] if "limits_mw" in gpu else None,
         "gpu", f"{NVIDIA}/limits.py"),
        ("the SM clock under load at each reason, p50 in MHz?", _reasons(parts), "clocks_*",
         f"{NVIDIA}/clocks.py: look"),
        ("idle power without and with a context, p50 in mW?", _idle(parts), "energy_idle, energy_context",
         f"{NVIDIA}/energy.py"),
        ("which rules contradicted a window?", _rules(parts.get("windows")), "windows",
         "tuner/core/witnesses.py"),
        ("do clocks follow and return?", parts.get("write", {}).get("answer"), "write",
         f"{NVIDIA}/knobs.py: TOLERANCE_MHZ"),
    )  # fmt: skip
    return [
        {"question": q, "answer": OPEN if a is None else str(a), "data": data, "rule": rule}
        for q, a, data, rule in rows
    ]


def _study(parts: Report) -> str | None:
    part = parts.get("batch_study", {})
    if "agrees" not in part:
        return None
    own, turns = (part[name][0] for name in ("study_saves", "in_turns_saves"))
    wrong = len(part["evidence"]["contradictions"])
    how = "agree" if part["agrees"] else "DISAGREE"
    return (
        f"{own:.1%} by the product, {turns:.1%} in turns: {how}; evidence: {wrong} contradictions"
    )


def _listed(part: Report, load: Report) -> str | None:
    if "load_listed" not in part:
        return None
    seen = "yes" if part["load_listed"] else "no"
    return f"{seen}, {part['others']} others; in {load.get('pid_namespaces')} PID namespaces"


def _both(part: Report) -> list[object] | None:
    ratios = [part.get(f"ratio_to_{power}_mw") for power in ("instant", "average")]
    return ratios if any(ratios) else None


def _calls(part: Report | None) -> Iterator[tuple[str, Report]]:
    for name, call in (part or {}).items():
        if isinstance(call, dict) and "codes" in call:
            yield name, call


def _slowest(parts: Report) -> str | None:
    slow = [
        (call["p99_us"], name)
        for user in ("calls_root", "calls_unprivileged")
        for name, call in _calls(parts.get(user))
    ]
    return "{1}: {0}".format(*max(slow)) if slow else None


def _codes(part: Report | None) -> str | None:
    failed = [f"{n}: {', '.join(c['codes'])}" for n, c in _calls(part) if {*c["codes"]} != {"0"}]
    return ("; ".join(failed) or "none") if any(_calls(part)) else None


def _reasons(parts: Report) -> str | None:
    shown = [
        f"{share} % {why}: {one['p50']:g}"
        for share in (100, 30, 5)
        for why, one in parts.get(f"clocks_{share}", {}).get("reasons", {}).items()
    ]
    return ", ".join(shown) or None


def _idle(parts: Report) -> list[object] | None:
    rows = [parts.get(f"energy_{name}", {}) for name in LOADS[:2]]
    powers = [row.get("instant_mw", row.get("average_mw", {})).get("p50") for row in rows]
    return powers if any(powers) else None


def _rules(part: Report | None) -> str | None:
    if not part or "windows" not in part:
        return None
    wrong = [
        f"{one['rule']} {one['result']}"
        for row in part["windows"]
        for one in row["rules"]
        if one["result"] != "agrees"
    ]
    refused = [row["refused"] for row in part["windows"] if "refused" in row]
    return "; ".join(dict.fromkeys([*refused, *wrong])) or "none"
