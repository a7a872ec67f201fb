"""`jouletune doctor --fleet`: the tuners of one database, and their clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tuner.cli.answers import Finding
from tuner.moments import when
from tuner.wire import SERVED, DeviceView, ReplicaView

SILENT_S = 45.0
"""A tuner without a report for this long is gone, or does not reach the database."""
SLOW_S = 1.0
"""Notices that take longer make agents wait for their orders."""


def examine_fleet(
    replicas: Sequence[ReplicaView], devices: Sequence[DeviceView]
) -> Iterator[Finding]:
    """Yield the findings about tuners, from their own reports, and about their devices."""
    at_work = [one for one in replicas if one.told_s <= SILENT_S]
    for one in sorted(replicas, key=lambda r: r.replica.started_at):
        yield _tuner(one)
    if not replicas:
        yield Finding("tuner", False, "no tuner has ever reported", "start a tuner of this release")
    yield _leader(at_work)
    yield _alike("releases", at_work, [r.replica.version for r in at_work],
                 "finish the upgrade; until then both releases work together")  # fmt: skip
    yield _alike("token files", at_work, [r.replica.token_mark for r in at_work],
                 "copy one tuner's token file to the others, and restart those")  # fmt: skip
    yield _protocols(at_work)
    away = sorted(d.device.id for d in devices if not d.online)
    hint = f"check {', '.join(away[:3])}{', …' if away[3:] else ''}" if away else ""
    yield Finding("devices", not away, f"{len(devices)} registered, {len(away)} offline", hint)


def _tuner(one: ReplicaView) -> Finding:
    """Return whether a tuner reports, and receives the notices of others in time."""
    replica, about = one.replica, f"tuner {one.replica.id}"
    if one.told_s > SILENT_S:
        why = f"{replica.host}: no report for {one.told_s:.0f} s"
        return Finding(about, False, why, "check that it runs and reaches the database")
    lag = replica.bus_lag_s
    contact = (
        "gets no notices of other tuners"
        if lag is None
        else f"gets notices of the others after {lag * 1000.0:.0f} ms"
    )
    state = (
        f"{replica.host}: jouletune {replica.version} since {when(replica.started_at)}, "
        f"{replica.memory_bytes / 1e6:.0f} MB, {contact}"
    )
    if lag is not None and lag > SLOW_S:
        return Finding(about, False, state, "check the load of its machine and of the database")
    return Finding(about, True, f"{state}{'; leads' if replica.leads else ''}")


def _leader(at_work: Sequence[ReplicaView]) -> Finding:
    """Return whether exactly one tuner leads."""
    leading = sorted(one.replica.id for one in at_work if one.replica.leads)
    if len(leading) == 1:
        return Finding("leader", True, f"{leading[0]} of {len(at_work)}")
    if not leading:
        hint = "one becomes the leader within a minute; if not, check the tuners' logs"
        return Finding(
            "leader", False, "no leader: lost trials, drift and notifications are not handled", hint
        )
    hint = "SQLite is for one tuner: stop the others, or change to PostgreSQL"
    return Finding("leader", False, f"{', '.join(leading)} lead at the same time", hint)


def _alike(about: str, at_work: Sequence[ReplicaView], words: Sequence[str], hint: str) -> Finding:
    """Return whether all reporting tuners have the same value."""
    kinds = sorted(set(words))
    if len(kinds) <= 1:
        return Finding(about, True, f"the same at {len(at_work)} of {len(at_work)}")
    return Finding(about, False, ", ".join(kinds), hint)


def _protocols(at_work: Sequence[ReplicaView]) -> Finding:
    """Return whether every agent uses the newest protocol."""
    counts: Counter[int] = Counter()
    for one in at_work:
        counts.update(one.replica.agents)
    state = ", ".join(f"{n} speak protocol {protocol}" for protocol, n in sorted(counts.items()))
    old = sum(n for protocol, n in counts.items() if protocol < max(SERVED))
    hint = "upgrade these agents before the tuner's next release" if old else ""
    return Finding("agents", not old, state or "no agent had contact recently", hint)
