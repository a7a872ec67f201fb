"""The findings on one page for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def page(report: Mapping[str, Any]) -> str:
    """Return the page, in Markdown."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    host, gpu, parts = report["host"], report["gpu"], report["parts"]
    yield f"# First hour: {gpu.get('name', 'no GPU answers')}"
    yield ""
    driver = gpu.get("driver", "not told")
    yield f"- {host['at']}, Python {host['python']}, kernel {host['kernel']}, driver {driver}"
    yield f"- Took {report['seconds']:.0f} s of at most {report['limit_s']:.0f} s" + (
        f"; durations scaled by {report['scale']:g}" if report["scale"] != 1.0 else ""
    )
    if not report["complete"]:
        yield "- Not complete: it was ended before its last part"
    load = report["load"]
    yield (
        f"- Load: {load['on']}, kernels through its CUDA driver"
        if load.get("on")
        else f"- No load: {load.get('why')}"
    )
    missing = {
        name: part[why]
        for name, part in parts.items()
        for why in ("failed", "not_run")
        if why in part
    }
    yield "- Every part ran" if not missing else f"- {len(missing)} parts did not run or failed:"
    yield from (
        f"  - {name}: {(str(why).strip() or 'no reason told').splitlines()[-1]}"
        for name, why in missing.items()
    )
    yield from _settings(parts.get("settings", {}))
    yield from ("", "## Questions", "| question | answer | data | decides |", "|---|---|---|---|")
    yield from (_row(*one.values()) for one in report["questions"])
    yield from _calls(parts)
    yield from _energy(parts)
    yield from _clocks(parts)
    yield from _windows(parts.get("windows", {}))
    for name in ("doctor_idle", "doctor_loaded"):
        yield from _doctor(name, parts.get(name, {}))


def _row(*cells: object) -> str:
    return "| " + " | ".join("" if cell is None else str(cell) for cell in cells) + " |"


def _settings(part: Mapping[str, Any]) -> Iterator[str]:
    if "equal_but_for_readings" in part:
        shown = "equal but for readings" if part["equal_but_for_readings"] else part["changed"]
        yield f"- `nvidia-smi -q` before and after: {shown}"


def _calls(parts: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        "",
        "## NVML calls",
        "| call | as | n | codes | p50 µs | p99 µs |",
        "|---|---|---|---|---|---|",
    )
    for user in ("calls_root", "calls_unprivileged"):
        for name, call in parts.get(user, {}).items():
            if isinstance(call, dict) and "codes" in call:
                codes = ", ".join(f"{code}: {n}" for code, n in call["codes"].items())
                yield _row(name, user[6:], call["n"], codes, call["p50_us"], call["p99_us"])


def _energy(parts: Mapping[str, Any]) -> Iterator[str]:
    head = ("counter step ms", "quantum mJ", "to instant", "to average", "instant ms", "average ms")
    yield from ("", "## Energy counter and power")
    yield from (_row("load", *head, "SM MHz", "utilisation %"), "|---" * 9 + "|")
    for name in ("idle", "context", "steady", "memory", "on_off"):
        part = parts.get(f"energy_{name}", {})
        counter = part.get("counter_mj", {})
        cells = [_p50(counter), counter.get("quantum", "")]
        cells += [part.get(f"ratio_to_{power}_mw", "") for power in ("instant", "average")]
        cells += [_p50(part.get(f"{power}_mw", {})) for power in ("instant", "average")]
        yield _row(name, *cells, *(_span(part, column) for column in ("sm_mhz", "utilisation_pct")))
    yield from ("", f"Processes on the GPU: {parts.get('who_works_here', {})}")


def _span(part: Mapping[str, Any], name: str) -> str:
    """Return least, median and greatest of a column; empty without it."""
    return "{least:g} / {p50:g} / {most:g}".format(**part[name]) if part.get(name) else ""


def _p50(part: Mapping[str, Any]) -> object:
    return part.get("interval_ms", {}).get("p50", "")


def _clocks(parts: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        "",
        "## Clock under load",
        "| load | SM MHz | utilisation % | reasons |",
        "|---|---|---|---|",
    )
    for share in (100, 30, 5):
        part = parts.get(f"clocks_{share}", {})
        spans = [_span(part, name) for name in ("sm_mhz", "utilisation_pct")]
        reasons = [f"{why}: {one['n']}" for why, one in part.get("reasons", {}).items()]
        yield _row(f"{share} %", *spans, ", ".join(reasons))


def _windows(part: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", "## Windows of the product", f"Energy by {part.get('source', 'nothing')}.", "")
    yield from ("| s | J | items | J an item | °C | notes |", "|---|---|---|---|---|---|")
    for row in part.get("windows", ()):
        cells = (row["totals"].get("energy_j"), row.get("items"), row.get("j_per_item"))
        yield _row(f"{row['seconds']:.2f}", *cells, row["celsius"], "; ".join(_remarks(row)))


def _remarks(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the notes of a window, and the rules that contradict it."""
    yield from ([row["refused"]] if "refused" in row else [])
    yield from (f"{subject}: {text}" for subject, text in row.get("notes", {}).items())
    for one in row.get("rules", ()):
        if one["result"] != "agrees":
            yield f"{one['rule']}: {one['result']}, {one['why']}"


def _doctor(name: str, part: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", f"## {name.replace('_', ', ')}")
    for finding in part.get("findings", ()):
        yield f"- {'yes' if finding['there'] else 'NO'} {finding['about']}: {finding['seen']}"
