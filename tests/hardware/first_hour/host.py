"""The first hour on a Jetson board, a CPU server, or an AMD or Intel GPU: reads all, sets nothing.

The report covers the kernel's files of energy, power, clocks and heat: their permissions, their read
times, and their steps when idle, under load and with a load on and off every 50 ms. The load is this
machine's CPUs, one process each. Takes at most six minutes; leaves one JSON and one page. Standard
library only.
"""

from __future__ import annotations

import argparse
import json
import math
import mmap
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.hardware.first_hour.series import described, series, spread, steps

FORMAT = "jouletune-first-hour-host-1"
ENERGY_S, CLOCKS_S, WINDOW_S, WINDOWS = 40.0, 20.0, 5.0, 10
POLL_S, LOOK_S = 0.005, 0.02
PERIOD_S = 0.1
"""The period of a load on and off, in s: 50 ms each."""
REPEATS, NOBODY, QUERY_S = 200, 65534, 10.0
COUNTERS = ("sys/class/powercap/*/energy_uj", "sys/class/hwmon/hwmon*/energy*_input")
POWERS = (
    "sys/class/powercap/*/power_uw",
    "sys/bus/i2c/devices/*/hwmon/hwmon*/power*_input",
    "sys/bus/i2c/devices/*/hwmon/hwmon*/curr[1-6]_input",
    "sys/class/hwmon/hwmon*/power[12]_average",
    "sys/class/hwmon/hwmon*/power[12]_input",
    "sys/class/hwmon/hwmon*/device/power1_average",
)
CLOCKS = (
    "sys/devices/system/cpu/cpufreq/policy*/scaling_cur_freq",
    "sys/devices/system/cpu/cpufreq/policy*/cpuinfo_cur_freq",
    "sys/class/devfreq/*/cur_freq",
    "sys/kernel/debug/bpmp/debug/clk/emc/rate",
    "sys/class/hwmon/hwmon*/freq1_input",
    "sys/class/drm/card*/device/tile*/gt*/freq0/act_freq",
    "sys/class/drm/card*/gt/gt*/rps_act_freq_mhz",
)
HEAT = ("sys/class/thermal/thermal_zone*/temp", "sys/class/thermal/cooling_device*/cur_state")
SETTINGS = (
    "sys/devices/system/cpu/cpufreq/policy*/scaling_m??_freq",
    "sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
    "sys/devices/system/cpu/cpufreq/policy*/energy_performance_preference",
    "sys/devices/system/cpu/cpufreq/boost",
    "sys/class/powercap/*/constraint_*_power_limit_uw",
    "sys/class/devfreq/*/m??_freq",
    "sys/class/devfreq/*/governor",
    "sys/kernel/debug/bpmp/debug/clk/emc/mrq_rate_locked",
    "sys/class/hwmon/hwmon*/power[12]_cap",
    "sys/class/hwmon/hwmon*/power[12]_max",
    "sys/class/drm/card*/device/power_dpm_force_performance_level",
    "sys/class/drm/card*/device/tile*/gt*/freq0/m??_freq",
    "sys/class/drm/card*/gt/gt*/rps_[mb]*_freq_mhz",
)
"""The files that the product would set: they are read before and after."""
SHOWN_BY: tuple[str, ...] = (
    "sys/bus/i2c/devices/*/name",
    "sys/bus/i2c/devices/*/hwmon/hwmon*/*_label",
)
SHOWN_BY += ("sys/class/hwmon/hwmon*/name", "sys/class/hwmon/hwmon*/device/power1_oem_info")
SHOWN_BY += ("sys/class/drm/card*/device/device", "sys/class/drm/card*/device/pp_dpm_sclk")


def found(root: Path, patterns: Sequence[str]) -> list[Path]:
    """Return the files that match patterns."""
    return [file for pattern in patterns for file in sorted(root.glob(pattern)) if file.is_file()]


def texts(root: Path, patterns: Sequence[str]) -> dict[str, str]:
    """Return the contents of files, or the error of each unreadable one."""
    return {str(file.relative_to(root)): _text(file) for file in found(root, patterns)}


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip("\0\n ")
    except OSError as error:
        return f"({error.strerror})"


def number(file: Path) -> float:
    """Return the number in a file, NaN if there is none."""
    try:
        return float(file.read_text())
    except (OSError, ValueError):
        return math.nan


def cost(file: Path) -> dict[str, Any]:
    """Return the times of 200 reads of a file in microseconds, or its error."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        try:
            file.read_bytes()
        except OSError as error:
            return {"error": error.strerror}
        times.append((time.perf_counter() - began) * 1e6)
    times.sort()
    return {"p50_us": round(times[len(times) // 2], 1), "p99_us": round(times[-3], 1)}


def readable_by(uid: int, files: Sequence[Path]) -> dict[str, str]:
    """Return the errors of another user's reads of files; readable files are left out."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        refused = {str(file): _text(file) for file in files if not os.access(file, os.R_OK)}
        os.write(writer, json.dumps(refused).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer: dict[str, str] = json.loads(pipe.read() or "{}")
    os.waitpid(child, 0)
    return answer


class Burners:
    """One process per CPU that computes for a share of the time; items are counted in shared memory."""

    def __init__(self, cpus: int, share: float) -> None:
        self._counts = mmap.mmap(-1, 8 * max(1, cpus))
        self._pids = [self._fork(cpu, share) for cpu in range(cpus)]

    def items(self) -> int:
        """Return the items done by all processes."""
        return sum(memoryview(self._counts).cast("Q"))

    def end(self) -> None:
        """End them."""
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _fork(self, cpu: int, share: float) -> int:
        parent = os.getpid()
        if (pid := os.fork()) != 0:
            return pid
        counts = memoryview(self._counts).cast("Q")
        while os.getppid() == parent:
            began = time.monotonic()
            while time.monotonic() - began < PERIOD_S * share:
                sum(number * number for number in range(2000))
                counts[cpu] += 1
            time.sleep(max(0.0, PERIOD_S - (time.monotonic() - began)) if share < 1.0 else 0.0)
        os._exit(0)


def under(share: float, job: Callable[[Burners], Any]) -> Any:  # noqa: ANN401 - as the job
    """Return a job's result while all CPUs compute for a share of every 100 ms."""
    burners = Burners((os.cpu_count() or 1) if share else 0, share)
    try:
        return job(burners)
    finally:
        burners.end()


def energies(root: Path, seconds: float) -> dict[str, Any]:
    """Return the steps of every energy counter and power file in this time."""
    files = found(root, (*COUNTERS, *POWERS))
    rows = series(seconds, POLL_S, lambda: tuple(map(number, files)))
    told: dict[str, Any] = {"samples": len(rows)}
    for column, file in enumerate(files, 1):
        known = [row[column] for row in rows if not math.isnan(row[column])]
        about = described(steps(rows, column)) if known else {"why": _text(file)}
        told[str(file.relative_to(root))] = about | spread(known)
    return told


def clocks(root: Path, seconds: float) -> dict[str, Any]:
    """Return clocks and temperatures every 20 ms."""
    files = found(root, (*CLOCKS, *HEAT))
    rows = series(seconds, LOOK_S, lambda: tuple(map(number, files)))
    known = {
        str(file.relative_to(root)): [row[n] for row in rows if not math.isnan(row[n])]
        for n, file in enumerate(files, 1)
    }
    return {"samples": len(rows)} | {name: spread(values) for name, values in known.items()}


def windows(root: Path, seconds: float, burners: Burners) -> list[dict[str, Any]]:
    """Return ten windows: the count of every counter, the items, and the highest temperature."""
    files, heat = found(root, COUNTERS), found(root, HEAT[:1])
    rows = []
    for _ in range(WINDOWS):
        before, items, began = [number(file) for file in files], burners.items(), time.monotonic()
        time.sleep(seconds)
        counted = {
            str(file.relative_to(root)): number(file) - was
            for file, was in zip(files, before, strict=True)
        }
        hottest = max((number(zone) for zone in heat), default=math.nan)
        done = burners.items() - items
        rows.append(
            {"seconds": time.monotonic() - began, "items": done, "counted": counted}
            | ({} if math.isnan(hottest) else {"celsius": hottest / 1000.0})
        )
    return rows


def asked(*command: str) -> str:
    """Return the output of a read-only program; empty if it is missing."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_S, check=False)
    return done.stdout + done.stderr


def first_hour(root: Path, scale: float) -> dict[str, Any]:
    """Return the report."""
    began, before = time.monotonic(), texts(root, SETTINGS)
    sensors = found(root, (*COUNTERS, *POWERS, *CLOCKS, *HEAT))
    report: dict[str, Any] = {
        "format": FORMAT,
        "scale": scale,
        "host": {
            "python": platform.python_version(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
            "root": os.geteuid() == 0,
            **texts(root, ("proc/device-tree/model", "etc/nv_tegra_release")),
        },
        "sensors": texts(root, SHOWN_BY),
        "read": {str(file.relative_to(root)): cost(file) for file in sensors},
        "refused_to_nobody": readable_by(NOBODY, sensors)
        if os.geteuid() == 0
        else "this is not root",
        "nvpmodel": asked("nvpmodel", "-q"),
    }
    for name, share in (("idle", 0.0), ("steady", 1.0), ("on_off", 0.5)):
        report[f"energy_{name}"] = under(share, lambda _: energies(root, ENERGY_S * scale))
    for share in (0.05, 0.3, 1.0):
        length = CLOCKS_S * scale
        report[f"clocks_{share * 100:.0f}"] = under(share, lambda _, s=length: clocks(root, s))  # type: ignore[misc]
    report["windows"] = under(1.0, lambda burners: windows(root, WINDOW_S * scale, burners))
    after = texts(root, SETTINGS)
    report["settings_changed"] = {
        f: [before.get(f), now] for f, now in after.items() if before.get(f) != now
    }
    report["settings"] = len(after)
    report["questions"] = questions(report)
    return report | {"seconds": round(time.monotonic() - began, 1)}


def questions(report: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return each question with its answer, its data, and the product's rule it decides."""
    energy = "agents/devices/cpu/energy.py, drm/energy.py, jetson/rails.py"
    clock = "agents/devices/cpu/knobs.py, drm/knobs.py, jetson/knobs.py"
    slow = [one["p99_us"] for one in report["read"].values() if "p99_us" in one]
    rows = (
        ("who may not read which sensors?", _short(report["refused_to_nobody"]), "refused_to_nobody",
         "deploy/install.sh"),
        ("how often does each counter or power step under load, p50 in ms?",
         _per_file(report, "energy_steady", lambda one: one.get("interval_ms", {}).get("p50")),
         "energy_steady", energy),
        ("its quantum?", _per_file(report, "energy_steady", lambda one: one.get("quantum")),
         "energy_steady", energy),
        ("its longest freeze when idle, in ms?",
         _per_file(report, "energy_idle", lambda one: one.get("interval_ms", {}).get("most")),
         "energy_idle", energy),
        ("the slowest read, p99 in µs?", f"{max(slow):g}" if slow else "", "read",
         "agents/actuator/sysfs.py"),
        *((f"each clock at {share} % load, p50?",
           _per_file(report, f"clocks_{share}", lambda one: one.get("p50")), f"clocks_{share}", clock)
          for share in (5, 30, 100)),
        ("did a setting change by itself?", _short(report["settings_changed"]), "settings_changed",
         "agents/actuator/restoring.py"),
    )  # fmt: skip
    return [
        (question, answer or "not answered", data, rule) for question, answer, data, rule in rows
    ]


def _per_file(
    report: Mapping[str, Any], part: str, fact: Callable[[Mapping[str, Any]], Any]
) -> str:
    """Return a fact of each file of a part, equal ones of equally named files once."""
    found = {
        f"{file.rpartition('/')[2]}: {value:g}"
        for file, one in report[part].items()
        if isinstance(one, dict) and (value := fact(one)) is not None
    }
    return ", ".join(sorted(found))


def _short(found: object) -> str:
    """Return a finding as text; `none` if it is empty."""
    if not isinstance(found, dict):
        return str(found)
    return ", ".join(f"{name}: {value}".strip(": ") for name, value in found.items()) or "none"


def page(report: Mapping[str, Any]) -> str:
    """Return the page, in Markdown."""
    host = report["host"]
    lines = [
        f"# First hour: {host.get('proc/device-tree/model', host['machine'])}",
        f"- Python {host['python']}, kernel {host['kernel']}, {host['cpus']} CPUs, {report['seconds']} s",
        f"- settings before and after: {report['settings']}, changed: {report['settings_changed']}",
        *("", "| question | answer | data | decides |", "|---" * 4 + "|"),
        *(f"| {' | '.join(row)} |" for row in report["questions"]),
        *(
            "",
            "| sensor | read p50 µs | step ms idle | steady | on and off | quantum |",
            "|---" * 6 + "|",
        ),
    ]
    for name, read in report["read"].items():
        moved = [report[f"energy_{how}"].get(name, {}) for how in ("idle", "steady", "on_off")]
        gaps = [str(one.get("interval_ms", {}).get("p50", "")) for one in moved]
        if any(moved):
            latency = read.get("p50_us", read.get("error"))
            lines.append(
                f"| {name} | {latency} | {' | '.join(gaps)} | {moved[1].get('quantum', '')} |"
            )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a hundredth of all durations")
    parser.add_argument("--output", type=Path, default=Path(), help="the folder of the two files")
    parser.add_argument("--root", type=Path, default=Path("/"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    report = first_hour(given.root, 0.01 if given.quick else 1.0)
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "first-hour.json").write_text(json.dumps(report, indent=1) + "\n")
    (given.output / "first-hour.md").write_text(page(report))
    sys.stderr.write(
        f"{given.output / 'first-hour.json'} and first-hour.md: {report['seconds']} s\n"
    )
    return 0
