"""Diagnosis of a Jetson board: its symptoms, each with a one-line cure. Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from agents.devices.jetson.board import Board, read_board
from agents.devices.jetson.device import MEMORY_CAP, open_jetson, throttles
from agents.devices.jetson.jtop import JtopReport, ask_jtop
from agents.devices.jetson.knobs import BPMP, GPU, KNOBS, MEMORY, gpus
from agents.devices.jetson.rails import find_monitors
from agents.host.machine import text_of
from agents.host.symptoms import Symptom, rights
from agents.target.side import Side

NO_TOTAL = "send us `jouletune doctor --bundle` of this board: docs/hardware-report.md"
NOT_KNOWN = "unknown board: it is measured by the labels of its sensors"
OLD = "jouletune supports JetPack 6 and 7; this release is read-only"


def examine(root: Path) -> Iterator[Symptom]:
    """Yield the symptoms of the Jetson board at `root`; nothing if it is not a Jetson.

    Raises:
        TuningError: it cannot be opened.
    """
    board = read_board(root)
    if board is None:
        return
    with closing(open_jetson("", seed=0, state_dir=None, root=root)) as side:
        yield Symptom(
            "jetson", True, f"{board.model}, {board.family.name.title()}, {board.jetpack}"
        )
        if board.known is None:
            yield Symptom("jetson: board", False, NOT_KNOWN, NO_TOTAL)
        if not board.supported:
            yield Symptom("jetson: JetPack", False, f"{board.jetpack} is not supported", OLD)
        yield from _clocks(root, side, board)
        granted = [knob.name for knob in side.space.knobs]
        yield rights("jetson", granted, side.cannot.get(KNOBS[0], ""), "jetson")
        yield from _power(root)
        yield from _second_opinion(root, ask_jtop())
        hot = throttles(root)
        yield Symptom(
            "jetson: heat", not hot, f"throttled by {', '.join(hot)}" if hot else "not throttled"
        )


def _clocks(root: Path, side: Side, board: Board) -> Iterator[Symptom]:
    """Yield the symptoms of the GPU's and the memory's clock."""
    for node in gpus(root)[:1]:
        low, high = (text_of(node / f"{end}_freq").strip() for end in ("min", "max"))
        steps = len(text_of(node / "available_frequencies").split())
        yield Symptom(
            f"jetson: {GPU}", steps > 1, f"{node.name}: {steps} clocks, now {low} to {high} Hz"
        )
        if low == high and steps > 1:
            yield Symptom(
                "jetson: jetson_clocks", False, "the GPU's minimum equals its "
                    "maximum, so its clock is fixed",
                "jetson_clocks --restore",
            )  # fmt: skip
    if not gpus(root):
        yield Symptom(
            f"jetson: {GPU}",
            False,
            "no GPU among /sys/class/devfreq and /sys/devices/platform/bus@0",
            "check that its driver is loaded",
        )
    cap = text_of(root / MEMORY_CAP).strip()
    named = {knob.name for knob in side.space.knobs}
    if MEMORY in named:
        state = f"locked by the actuator through {BPMP}" + (f", mode's cap {cap} Hz" if cap else "")
        yield Symptom(f"jetson: {MEMORY}", True, state)
    else:
        yield Symptom(
            f"jetson: {MEMORY}", False, "only root can read it, in "
                "debugfs; the actuator does not provide it",
            "mount -t debugfs none /sys/kernel/debug (Thor has no lock at run time)",
        )  # fmt: skip


def _power(root: Path) -> Iterator[Symptom]:
    """Yield whether the rails give the board's total power."""
    monitors = find_monitors(root)
    total = " + ".join(rail.name for rail in monitors.total)
    rails = ", ".join(monitors.rails) or "no power monitor"
    if total:
        yield Symptom(
            "jetson: energy",
            True,
            f"{total}, of the rails {rails}; {monitors.averaging}".rstrip("; "),
        )
    else:
        yield Symptom("jetson: energy", False, f"{rails}; {monitors.missing_rails}", NO_TOTAL)


def _second_opinion(root: Path, report: JtopReport) -> Iterator[Symptom]:
    """Yield the report of jetson-stats and its differences to ours; nothing depends on it."""
    if report.error:
        yield Symptom("jetson: jtop", True, f"not available ({report.error}); not needed")
        return
    heat = f", hottest {report.hottest_c:.0f} °C" if report.hottest_c is not None else ""
    mode = f", mode {report.mode} of {', '.join(report.modes)}" if report.mode else ""
    comparison = (
        f"{report.model}, JetPack {report.jetpack}{mode}{heat}, {report.gpu_processes} on the GPU"
    )
    yield Symptom("jetson: jtop", True, comparison)
    if report.jetson_clocks:
        yield Symptom(
            "jetson: jtop runs jetson_clocks", False, "it fixes the clocks that jouletune sets",
            "turn it off in jtop, or: jetson_clocks --restore",
        )  # fmt: skip
    monitors = find_monitors(root)
    ours = monitors.power_w() if monitors.total else None
    if ours is not None and report.disagrees(ours):
        yield Symptom(
            "jetson: power, two sources", False, f"{ours:.1f} W measured, {report.power_w:.1f} W by jtop",
            "without a total rail, jtop adds up all rails, one of them twice on AGX Orin",
        )  # fmt: skip
