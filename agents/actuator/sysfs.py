"""Knobs that are files of the kernel under /sys, as root writes them.

Sources: the kernel's Documentation/admin-guide/pm/cpufreq.rst; drivers/cpufreq/cpufreq.c (show, store: a
policy without an online CPU answers EBUSY and keeps its limits; cpufreq_set_policy: since Linux 5.16 a
ceiling becomes the next lower clock of a policy's own table); arch/x86/events/intel/core.c for the lists of
a hybrid's cores. Ours: a clock knob is a ceiling over all clock domains of like cores, of which each keeps
to what it can do, so that what idles still slows down by itself; its ladder is all their tables, or steps
of 100 MHz where a driver has a range in place of a table; cores are like while the next weaker one has at
least 85 % of a core's `cpu_capacity`, else of its greatest clock, where no list tells a hybrid's small
cores.
"""

import errno
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.actuator.driver import Value
from tuner.errors import ActuationError

CPU_CLOCK = "cpu.max_mhz"
CPUS, TOP = "sys/devices/system/cpu", "cpuinfo_max_freq"
POLICIES = f"{CPUS}/cpufreq/policy[0-9]*"
SMALL_CORES = "sys/devices/cpu_[al]*/cpus"
"""Lists such as `16-23,30` of an Intel hybrid's small cores, by their PMUs: cpu_atom and cpu_lowpower."""
TABLE = "scaling_available_frequencies"
KHZ, STEP_KHZ = 1000, 100_000
LIKE, MOST_DIGITS, MOST_RUNGS = 0.85, 18, 1000
"""A number in a file with more digits, or a ladder with more steps, is none."""
CEILINGS = ("scaling_max_freq", "max_freq")
"""Files of cpufreq and devfreq that show the limit in force, not the one that was requested."""
AWAY = {errno.EBUSY, errno.ENOENT, errno.ENODEV}
"""What a file answers to a reader while the CPU or the device behind it is offline."""
EXCLUDED = (
    "its CPU went offline, or another knob excludes it: the governor performance fixes cpu.epp"
)
REFUSED = "check that no minimum is above it, and that the actuator's unit has the drop-in for this device"


class Away(ActuationError, code="actuation"):
    """A file's CPU or device is offline; it may come back as it was left."""


@dataclass(slots=True)
class FileKnob:
    """One knob: files that are written alike, and the values offered, ascending.

    `unit` is how many of the files' units make one of the knob's; 0: it is a word, which `texts` may have
    another text for. Every method raises ActuationError.
    """

    files: Sequence[Path]
    values: tuple[Value, ...]
    unit: int = 0
    texts: Mapping[Value, str] = field(default_factory=dict)

    def read(self) -> Value | None:
        """Return what the files that answer make of the knob; a text of all values where they differ."""
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
        """Return what is written to each file for a value.

        None: no throttling, which is the word `performance`, or the greatest value. Of a value offered a
        file gets the next lower clock of its own table. A text of several values is one for each file.
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
        """The entries that the knob is made of: its files' paths."""
        return [*map(str, self.files)]

    def tell(self, name: str) -> tuple[Value | None, int | None]:
        """Return what a file says, and the most that it may say now."""
        return content(Path(name)), most_of(Path(name))

    def put(self, name: str, value: Value | None) -> None:
        """Write one file."""
        text = str(self.plan(None)[name] if value is None else value)
        try:
            Path(name).write_text(text)
        except OSError as error:
            why = f"{name} rejects {text}: {error.strerror}"
            hint = EXCLUDED if error.errno == errno.EBUSY else REFUSED
            raise ActuationError(why, hint=hint) from error

    def write(self, value: Value | None) -> None:
        """Write all files."""
        for name, text in self.plan(value).items():
            self.put(name, text)

    def _rung(self, file: Path, number: int) -> int:
        """Return the clock of a file's own table that a value offered comes to."""
        offered = {round(float(v) * self.unit) for v in self.values}
        table = numbers(file.with_name(TABLE)) if number in offered else []
        return max((rung for rung in table if rung <= number), default=number)

    def _most(self, file: Path, number: int) -> int:
        return self._rung(file, min([number, *numbers(file.with_name(TOP))]))


@dataclass(eq=False)
class FileKnobs:
    """A device whose knobs are files; a KnobDriver whose entries are the files, by their paths.

    `find` returns the knobs that there are now, `offered` are those of the start: a file that appears later
    belongs to the knob with like files. `without` says why the device has not the others, `probed` are
    those that firmware may have locked, `moves` those that change others.
    """

    uuid: str
    board: str
    knobs: Sequence[str]
    offered: Mapping[str, FileKnob]
    root: Path
    find: Callable[[], Mapping[str, Any]]
    probed: Collection[str] = ()
    without: Mapping[str, str] = field(default_factory=dict)
    moves: Mapping[str, Sequence[str]] = field(default_factory=dict)
    files = True

    @property
    def epoch(self) -> str:
        """The kernel's number of the first clock policy: another one once the driver was loaded anew."""
        first = min(self.root.glob(POLICIES), key=lambda p: int(p.name[6:]), default=None)
        return str(first.stat().st_ino) if first else "no policy"

    @property
    def watched(self) -> list[str]:
        """The file that tells which CPUs are online."""
        return [str(self.root / CPUS / "online")]

    @property
    def ceilings(self) -> list[str]:
        """The knobs whose files a cap of the kernel lowers."""
        return [name for name, knob in self.offered.items() if knob.files[0].name in CEILINGS]

    def ranges(self) -> Mapping[str, tuple[Value, ...]]:
        """Return the knobs that can be written and their supported values, ascending."""
        return {name: knob.values for name, knob in self.offered.items()}

    def read(self) -> Mapping[str, Value | None]:
        """Return each knob's value in force; None where the hardware does not tell it."""
        shown: dict[str, Value | None] = {}
        for name, knob in self.offered.items():
            shown[name] = None
            with suppress(ActuationError):
                shown[name] = knob.read()
        return shown

    def entries(self, names: Collection[str] = ()) -> tuple[dict[str, Any], dict[str, str]]:
        """Return each file's knob, text and greatest text, and which do not answer, and why.

        What is offline is in neither. `names` are read, whatever knob they are of.
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
        """Return what is written to which file for a knob's value; None: no throttling."""
        return self.offered[knob].plan(value)

    def put(self, name: str, value: Value | None) -> None:
        """Write one file, of a knob or of a journal; None: no throttling."""
        knobs = (knob for knob in self.offered.values() if name in knob.names)
        next(knobs, FileKnob([Path(name)], ())).put(name, value)

    def write(self, knob: str, value: Value | None) -> None:
        """Set a knob to a supported value, to one that `read` returned before, or to no throttling."""
        self.offered[knob].write(value)

    def _grow(self) -> None:
        """Take up files that were not there before, as of a CPU that comes online."""
        listed = {file for knob in self.offered.values() for file in knob.files}
        ours = {file.name for file in listed}
        there = (
            f for p in self.root.glob(POLICIES) for name in ours if (f := p / name) not in listed
        )
        if not any(words(file) for file in there):
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
    """Return the device that has the knobs found; none where none of them can be used.

    A text says why there is no knob; one that cannot be read is left out.
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


def content(file: Path, kind: type = str) -> Any:  # noqa: ANN401 - of that kind
    """Return what a file says, without the NUL of a device tree. Raises ActuationError, Away."""
    try:
        return kind(file.read_text().strip("\0\n "))
    except (OSError, ValueError) as error:
        away = getattr(error, "errno", 0) in AWAY
        raise (Away if away else ActuationError)(f"cannot read {file}: {error}") from error


def most_of(file: Path) -> int | None:
    """Return the most that a policy's ceiling says now: boost moves it. None for any other file."""
    tops = numbers(file.with_name(TOP)) if file.name in CEILINGS else []
    return tops[-1] if tops else None


def words(*files: Path) -> set[str]:
    """Return the words in files; none where one of them does not answer."""
    with suppress(ActuationError):
        return {word for file in files for word in content(file).split()}
    return set()


def numbers(*files: Path) -> list[int]:
    """Return the whole numbers in files, ascending; none where one of them does not answer."""
    numerals = (word for word in words(*files) if word.isdecimal() and len(word) <= MOST_DIGITS)
    return sorted({int(word) for word in numerals})


def scaled(number: int, unit: int) -> int | float:
    """Return a number in a greater unit, whole where it is, or greater than any that is measured."""
    return number / unit if number % unit and number < 10**MOST_DIGITS else number // unit


def ceiling(files: Sequence[Path], ladder: Sequence[int], floor: str, unit: int) -> FileKnob:
    """Return the knob over files that limit a clock; `floor` is the file beside that limits it from below.

    What is under a floor that is set is not offered: the kernel would refuse it.
    """
    least = max(numbers(*(file.with_name(floor) for file in files)), default=0)
    return FileKnob(files, tuple(scaled(n, unit) for n in ladder if n >= least), unit)


def span(ends: Sequence[int], step: int = STEP_KHZ) -> list[int]:
    """Return the ladder from the first to the last of these numbers, nothing where that is no ladder."""
    short = ends and ends[-1] - ends[0] <= MOST_RUNGS * step
    return [*range(ends[0], ends[-1], step), ends[-1]] if short else []


def cpu_clocks(root: Path) -> dict[str, FileKnob]:
    """Return the knob over the clocks of all CPUs, or one for each kind, named after its first policy.

    A policy that does not answer has no CPU at work, and is left alone.
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
