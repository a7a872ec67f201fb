"""Knobs that are files of the kernel under /sys, as root writes them.

Sources: the kernel's Documentation/admin-guide/pm/cpufreq.rst; drivers/cpufreq/cpufreq.c (show, store: a
policy without an online CPU answers EBUSY and keeps its limits; cpufreq_set_policy: since Linux 5.16 a
ceiling becomes the next lower clock of a policy's own table); arch/x86/events/intel/core.c for the lists
of a hybrid's cores.

Our choices: a clock knob is a ceiling over all clock domains of like cores. Each domain stays within its
own range, so that idle cores still slow down. The knob's values are the union of the domains' tables, or
steps of 100 MHz if a driver has a range instead of a table. Cores are alike while the next weaker one has
at least 85 % of a core's `cpu_capacity`, else of its highest clock; a list of a hybrid's small cores takes
precedence.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.actuator.driver import Value
from agents.actuator.kernel_text import Away, content, numbers, put, scaled, span, words
from tuner.errors import ActuationError, KnobRefused

CPU_CLOCK = "cpu.max_mhz"
CPUS, TOP = "sys/devices/system/cpu", "cpuinfo_max_freq"
POLICIES = f"{CPUS}/cpufreq/policy[0-9]*"
SMALL_CORES = "sys/devices/cpu_[al]*/cpus"
"""Lists such as `16-23,30` of an Intel hybrid's small cores, by their PMUs: cpu_atom and cpu_lowpower."""
TABLE, INITIAL = "scaling_available_frequencies", "initial_max_freq_khz"
"""A policy's own clocks, and the greatest clock of an uncore's die or cluster."""
KHZ, LIKE = 1000, 0.85
CEILINGS = ("scaling_max_freq", "max_freq")
"""Files of cpufreq and devfreq that show the limit in force, not the one that was requested."""


@dataclass(slots=True)
class FileKnob:
    """One knob: files that are written alike, and the offered values, ascending.

    `unit` is the number of file units in one unit of the knob. With 0 the values are words, and `texts`
    maps those that the files spell differently. One that `follows` is moved by another knob and never
    offered. Every method raises ActuationError.
    """

    files: Sequence[Path]
    values: tuple[Value, ...]
    unit: int = 0
    texts: Mapping[Value, str] = field(default_factory=dict)
    follows: bool = False

    def read(self) -> Value | None:
        """Return the knob's value from the files that are online; if they differ, a text of all values.

        Files of clocks agree if each shows the highest clock of them, as limited by its table and its CPU.
        """
        shown: list[Any] = []
        with_values: list[Path] = []
        for file in self.files:
            with suppress(Away):
                shown.append(content(file, int if self.unit else str))
                with_values.append(file)
        if not shown:
            raise Away(f"no CPU of {self.files[0]} is online")
        words = {text: value for value, text in self.texts.items()}
        if self.unit and shown == [self._most(f, max(shown)) for f in with_values]:
            shown = [max(shown)]
        values = [scaled(n, self.unit) if self.unit else words.get(n, n) for n in shown]
        return values[0] if len({*values}) == 1 else " ".join(map(str, values))

    def plan(self, value: Value | None) -> dict[str, Any]:
        """Return the text to write to each file for a value.

        None removes the throttling: it is the word `performance` if offered, else the greatest value. For
        an offered value, each file gets the next lower clock of its policy's table. A text of several
        values has one for each file.
        """
        if value is None:
            value = "performance" if "performance" in self.values else self.values[-1]
        if not self.unit:
            return dict.fromkeys(map(str, self.files), self.texts.get(value, str(value)))
        numbers_ = [round(float(text) * self.unit) for text in str(value).split()]
        if len(numbers_) not in (1, len(self.files)):
            raise ActuationError(f"{value!r} are not values of {len(self.files)} files")
        each = (numbers_ * len(self.files))[: len(self.files)]
        rungs = zip(self.files, each, strict=True)
        return {str(file): str(self._rung(file, number)) for file, number in rungs}

    @property
    def names(self) -> list[str]:
        """Return the names of the knob's entries: the paths of its files."""
        return [*map(str, self.files)]

    def tell(self, name: str) -> tuple[Value | None, int | None]:
        """Return a file's text, and the greatest value that it may show at present."""
        return content(file := Path(name)), most_of(file)

    def put(self, name: str, value: Value | None) -> None:
        """Write one file; None removes the throttling."""
        put(Path(name), str(self.plan(None)[name] if value is None else value))

    def write(self, value: Value | None) -> None:
        """Write all files."""
        for name, text in self.plan(value).items():
            self.put(name, text)

    def _rung(self, file: Path, number: int) -> int:
        """Return the clock that a file shows for an offered value: the next lower one that it has."""
        offered = {round(float(v) * self.unit) for v in self.values}
        table, tops = (numbers(file.with_name(n)) * (number in offered) for n in (TABLE, INITIAL))
        return max((rung for rung in table if rung <= number), default=min([number, *tops]))

    def _most(self, file: Path, number: int) -> int:
        """Return the clock that a file shows for a number, limited by its CPU's highest clock."""
        return self._rung(file, min([number, *numbers(file.with_name(TOP))]))


@dataclass(eq=False)
class FileKnobs:
    """A device whose knobs are files; a KnobDriver whose entries are the files, named by path.

    `find` returns the present knobs, `offered` has those of the start: a file that appears later joins the
    knob that already has one of its group. `without` has the reason for each knob left out, `moves` the
    knobs that change others.
    """

    uuid: str
    board: str
    knobs: Sequence[str]
    offered: Mapping[str, FileKnob]
    root: Path
    find: Callable[[], Mapping[str, Any]]
    without: Mapping[str, str] = field(default_factory=dict)
    moves: Mapping[str, Sequence[str]] = field(default_factory=dict)
    files = True

    @property
    def epoch(self) -> str:
        """Return the inode number of the first clock policy: it changes when the driver is loaded again."""
        first = min(self.root.glob(POLICIES), key=lambda p: int(p.name[6:]), default=None)
        return str(first.stat().st_ino) if first else "no policy"

    @property
    def watched(self) -> list[str]:
        """Return the files whose changes move knobs: the list of online CPUs, and knobs such as boost."""
        movers = [self.offered[knob] for knob in self.moves if knob in self.offered]
        return [str(self.root / CPUS / "online"), *(knob.names[0] for knob in movers)]

    @property
    def ceilings(self) -> list[str]:
        """Return the knobs whose files a cap of the kernel lowers."""
        return [name for name, knob in self.offered.items() if knob.files[0].name in CEILINGS]

    def ranges(self) -> Mapping[str, tuple[Value, ...]]:
        """Return the knobs that can be written and their supported values, ascending."""
        return {name: knob.values for name, knob in self.offered.items() if not knob.follows}

    def read(self) -> Mapping[str, Value | None]:
        """Return each knob's value in force; None if it cannot be read."""
        shown: dict[str, Value | None] = {}
        for name in self.ranges():
            shown[name] = None
            with suppress(ActuationError):
                shown[name] = self.offered[name].read()
        return shown

    def entries(self, names: Collection[str] = ()) -> tuple[dict[str, Any], dict[str, str]]:
        """Return each file's knob, text and greatest text, and the reason of each failed read.

        An offline file is in neither. The files in `names` are read even if no knob has them.
        """
        self._grow()
        answers, silent = dict[str, Any](), dict[str, str]()
        knobs = {n: (k, knob) for k, knob in self.offered.items() for n in knob.names}
        for name in {*names} - knobs.keys():
            knobs[name] = "", FileKnob([Path(name)], ())
        for name, (kind, knob) in knobs.items():
            try:
                answers[name] = (kind, *knob.tell(name))
            except Away:
                continue
            except ActuationError as error:
                silent[name] = str(error)
        return answers, silent

    def plan(self, knob: str, value: Value | None) -> dict[str, Any]:
        """Return the text to write to each file for a knob's value; None removes the throttling."""
        return self.offered[knob].plan(value)

    def write(self, knob: str, value: Value | None) -> None:
        """Set a knob, or one file of a knob or of the journal; None removes the throttling."""
        knobs = ((k, of) for k, of in self.offered.items() if knob in (k, *of.names))
        name, of = next(knobs, ("", FileKnob([Path(knob)], ())))
        try:
            of.write(value) if knob == name else of.put(knob, value)
        except KnobRefused as error:
            error.knob = name
            raise

    def _grow(self) -> None:
        """Add files that have appeared since the start, as of a CPU that came online."""
        listed = {name for knob in self.offered.values() for name in knob.names}
        ours = {name.rpartition("/")[2] for name in listed if "/policy" in name}
        there = (f"{policy}/{name}" for policy in self.root.glob(POLICIES) for name in ours)
        if not any(words(Path(name)) for name in there if name not in listed):
            return
        for fresh in (k for k in self.find().values() if isinstance(k, FileKnob)):
            for knob in self.offered.values():
                if {*knob.files} & {*fresh.files}:
                    knob.files = [*knob.files, *(f for f in fresh.files if f not in knob.files)]


def devices(
    uuid: str,
    board: str,
    kinds: Sequence[str],
    root: Path,
    find: Callable[[], Mapping[str, FileKnob | str]],
    **more: Any,  # noqa: ANN401
) -> list[FileKnobs]:
    """Return the device with the knobs found; empty without knobs and without reasons for their absence.

    `find` returns a text for a missing knob: the reason. A knob that cannot be read is left out.
    """
    offered, without = dict[str, FileKnob](), dict[str, str]()
    for name, knob in find().items():
        try:
            if isinstance(knob, str):
                raise ActuationError(knob)
            if knob.files:
                knob.read()
                offered[name] = knob
        except (ActuationError, ValueError) as error:
            without[name] = str(error)
    kinds = (*dict.fromkeys((*kinds, *offered, *without)),)
    device = FileKnobs(uuid, board, kinds, offered, root, find, without=without, **more)
    return [device] if offered or without else []


def most_of(file: Path) -> int | None:
    """Return the present maximum of a policy's ceiling, which boost changes; None for any other file."""
    tops = numbers(file.with_name(TOP)) if file.name in CEILINGS else []
    return tops[-1] if tops else None


def ceiling(files: Sequence[Path], ladder: Sequence[int], floor: str, unit: int) -> FileKnob:
    """Return the knob over files that limit a clock; `floor` names the file of the lower limit beside each.

    Values below the lower limit in force are not offered, because the kernel would refuse them.
    """
    least = max(numbers(*(file.with_name(floor) for file in files)), default=0)
    return FileKnob(files, tuple(scaled(n, unit) for n in ladder if n >= least), unit)


def cpu_clocks(root: Path) -> dict[str, FileKnob]:
    """Return one knob over the clocks of all CPUs, or one per kind of core, named after its first policy.

    A policy that cannot be read has no online CPU, and is left alone.
    """
    small = ",".join(words(*root.glob(SMALL_CORES)))
    spans = [(int(a), int(b or a)) for a, b in re.findall(r"(\d{1,6})(?:-(\d{1,6}))?", small)]
    domains = []
    for file in root.glob(f"{POLICIES}/scaling_max_freq"):
        cpu = int(file.parent.name.removeprefix("policy"))
        ends = numbers(file.with_name("cpuinfo_min_freq"), file.with_name(TOP))
        table = numbers(file.with_name(TABLE))
        if numbers(file) and (table or span(ends)):
            strong = numbers(root / CPUS / f"cpu{cpu}/cpu_capacity") or ends or table
            domains.append((strong[-1], cpu, table, ends, file))
    kinds: dict[int, list[tuple[int, list[int], list[int], Path]]] = {}
    step = last = 0
    for strength, cpu, table, ends, file in sorted(domains, reverse=True):
        step, last = step + (strength < LIKE * last), strength
        kind = any(a <= cpu <= b for a, b in spans) if spans else step
        kinds.setdefault(kind, []).append((cpu, table, ends, file))
    knobs: dict[str, FileKnob] = {}
    for like in sorted(map(sorted, kinds.values())):
        name = CPU_CLOCK + f".{like[0][0]}" * (len(kinds) > 1)
        tables = {rung for _, table, _, _ in like for rung in table}
        ladder = sorted(tables) or span(sorted(end for _, _, ends, _ in like for end in ends))
        knobs[name] = ceiling([file for *_, file in like], ladder, "scaling_min_freq", KHZ)
    return knobs
