"""Compares a report of the first hour on real hardware with one on a stand-in: facts, not figures.

A stand-in may be another GPU with other watts and clocks. It must not be kinder: a call that a real driver
refuses, a counter that goes back or steps more coarsely, and a hidden process exist there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Report = Mapping[str, Any]
USERS = ("calls_root", "calls_unprivileged")
COARSER = 1.5
"""The counter of a real GPU may step in this multiple of the stand-in's interval."""


def contradictions(report: Report, stand_in: Report) -> list[str]:
    """Return a line for each fact of a real GPU, board or server that a stand-in does not show."""
    if "parts" not in report:
        return [*_sensors(report, stand_in)]
    return [*_codes(report, stand_in), *_facts(report, stand_in)]


def _sensors(report: Report, stand_in: Report) -> Iterator[str]:
    """Yield the facts of a board's or server's files, by the files' names, that differ."""
    real, fake = (_by_name(one) for one in (report, stand_in))
    for name in sorted(real):
        if name not in fake:
            yield f"{name}: it is read; the stand-in has no such file"
            continue
        for fact, value in real[name].items():
            scale = COARSER if fact == "interval_ms" else 1.0
            if value > scale * fake[name].get(fact, 0):
                yield f"{name}: {fact} {value:g}; stand-in: {fake[name].get(fact, 0):g}"


def _by_name(report: Report) -> dict[str, dict[str, float]]:
    """Return the greatest of each fact of a host's files, by their names."""
    worst: dict[str, dict[str, float]] = {}
    for file, read in report["read"].items():
        moved = report["energy_steady"].get(file, {})
        facts = {"refused": float("error" in read)}
        facts |= {fact: moved[fact] for fact in ("quantum", "backwards") if fact in moved}
        if "interval_ms" in moved and "quantum" in moved:
            facts["interval_ms"] = moved["interval_ms"]["p50"]
        own = worst.setdefault(file.rpartition("/")[2], {})
        own.update({fact: max(value, own.get(fact, 0.0)) for fact, value in facts.items()})
    return worst


def _codes(report: Report, stand_in: Report) -> Iterator[str]:
    """Yield the calls that answer with a code that the stand-in never gives."""
    for user in USERS:
        real, fake = (one["parts"].get(user, {}) for one in (report, stand_in))
        for name in sorted(real.keys() & fake.keys()):
            codes = [
                one[name].get("codes", {}) for one in (real, fake) if isinstance(one[name], dict)
            ]
            if len(codes) == 2 and (other := codes[0].keys() - codes[1].keys()):
                yield f"{user} {name}: code {', '.join(sorted(other))}; stand-in: {', '.join(codes[1])}"


def _facts(report: Report, stand_in: Report) -> Iterator[str]:
    """Yield the facts of the counter and of the processes that differ."""
    for name, fact, agrees in FACTS:
        real, fake = fact(report["parts"]), fact(stand_in["parts"])
        if real is not None and (fake is None or not agrees(real, fake)):
            yield f"{name}: {real}; stand-in: {fake}"


def _counter(key: str) -> Callable[[Mapping[str, Any]], Any]:
    def fact(parts: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a number, or None
        counter = parts.get("energy_steady", {}).get("counter_mj", {})
        return (
            counter.get("interval_ms", {}).get("p50") if key == "interval_ms" else counter.get(key)
        )

    return fact


def _part(part: str, key: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda parts: parts.get(part, {}).get(key)


FACTS: tuple[tuple[str, Callable[[Mapping[str, Any]], Any], Callable[[Any, Any], bool]], ...] = (
    ("step of the energy counter, ms", _counter("interval_ms"), lambda r, f: r <= COARSER * f),
    ("quantum of the energy counter, mJ", _counter("quantum"), lambda r, f: r <= f),
    ("backward steps of the energy counter", _counter("backwards"), lambda r, f: r <= f),
    (
        "counter over instant power", _part("energy_steady", "ratio_to_instant_mw"),
        lambda r, f: abs(r - f) <= 0.1,
    ),
    ("the load's process is listed", _part("who_works_here", "load_listed"), lambda r, f: r == f),
)  # fmt: skip
"""Name, value of a report's parts (None: not measured), and whether a real one agrees with a stand-in's."""
